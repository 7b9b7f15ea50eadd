"""A bench that is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

WITHIN_S = 120.0
# A bench as far as this matters: it starts a child as they do, waits, and is a command of its own.
BENCH = """
import subprocess, sys
from pathlib import Path

import trio

from bench.harness.systems.systems import running
from srtm.console.running import run_trio


async def bench():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    async with running("child", command, Path(sys.argv[1]), "", "", lambda: True) as child:
        print(child.pid, flush=True)
        await trio.sleep_forever()


run_trio(bench)
"""


async def test_what_a_bench_started_ends_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BENCH, str(tmp_path / "child")]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        with trio.fail_after(WITHIN_S):
            child = int(await process.stdout.receive_some(100))
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 128 + signal.SIGTERM
    finally:
        process.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
