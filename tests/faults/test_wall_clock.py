"""``tests.faults.wall_clock``: a process sees the offset at once, and only in its wall clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from srtm.errors import Unavailable
from tests.faults import wall_clock

HOUR_S = 3600.0
TELL = (
    "import sys, time\nfor _ in sys.stdin:\n    print(time.time_ns(), time.time(), time.monotonic_ns(), "
    "time.clock_gettime_ns(time.CLOCK_BOOTTIME), flush=True)"
)


def what_is_missing() -> str:
    try:
        wall_clock.check_compiler()
    except Unavailable as error:
        return str(error)
    return ""


@pytest.mark.skipif(what_is_missing() != "", reason=what_is_missing())
def test_a_running_process_sees_its_own_wall_clock_stepped_and_no_other_clock(tmp_path: Path) -> None:
    clock = wall_clock.WallClock(wall_clock.build(tmp_path), tmp_path / "offset")
    command = [sys.executable, "-S", "-c", TELL]
    environment = {**os.environ, **clock.environment}
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset_s in (0.0, HOUR_S, -24 * HOUR_S):
            clock.set(offset_s)
            process.stdin.write("\n")
            process.stdin.flush()
            wall_ns, wall_s, monotonic_ns, boottime_ns = map(float, process.stdout.readline().split())
            assert wall_ns / 1e9 - time.time() == pytest.approx(offset_s, abs=30)
            assert wall_s - time.time() == pytest.approx(offset_s, abs=30)
            assert monotonic_ns / 1e9 - time.monotonic() == pytest.approx(0, abs=30)
            assert boottime_ns / 1e9 - time.clock_gettime(time.CLOCK_BOOTTIME) == pytest.approx(0, abs=30)
        process.stdin.close()
