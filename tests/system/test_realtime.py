"""A broker in real time: only where the host allows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

CAP_SYS_NICE = 23
WAIT_S = 40.0
# Gives the capability and the limit up for good, then becomes the broker.
WITHOUT_CAPABILITY = f"""
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
ctypes.CDLL(None).prctl(24, {CAP_SYS_NICE}, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "srtm", "broker", *sys.argv[1:]])
"""


def test_real_time_without_its_capability_is_refused_by_name(tmp_path: Path) -> None:
    addresses = ["--tcp-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
    options = ["--name", "b", "--data-path", str(tmp_path), *addresses, "--realtime"]
    command = [sys.executable, "-c", WITHOUT_CAPABILITY, *options]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        "srtm broker: realtime: True: needs the capability CAP_SYS_NICE, which this process does not have\n"
    )
