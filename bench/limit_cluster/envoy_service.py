"""Envoy's rate limit service under load of the stock gRPC client: calls a second, and how late answers are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.harness.results.verdict import Check, at_most
from srtm.errors import Unavailable

CALLS_A_SECOND, P99_MS = 3_000, 5.0  # to reach
_START_S = 60.0
_CONTRACTS = """
[[contracts]]
namespace = "edge"
subject = "remote_address=*"
policies = [{ name = "burst", rate = 1e6, burst = 1e6 }]
"""


class Measured(NamedTuple):
    """``calls_a_second``: with 64 always open; the rest at a fixed rate. ``cpu_us``: of the service, for a call."""

    calls_a_second: float
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    wrong: int

    def checks(self) -> list[Check]:
        """Whether it is what it must reach."""
        fast = self.calls_a_second >= CALLS_A_SECOND
        said = f"{self.calls_a_second:,.0f}/s"
        return [
            Check("calls of the stock client", said, f"at least {CALLS_A_SECOND:,}/s", fast),
            at_most(f"p99 at {self.rate:,.0f}/s", self.p99_ms, P99_MS, "ms"),
            at_most("wrong or missing answers", self.wrong, 0, "calls"),
        ]


class _Load(msgspec.Struct):
    calls: int
    seconds: float
    wrong: int
    late_us: list[int]


def measure(seconds: float, rate: float) -> Measured:
    """Start a service, and load it twice. Raises Unavailable."""
    if importlib.util.find_spec("grpc") is None:
        raise Unavailable("the stock gRPC client is not here: pip install grpcio")
    with tempfile.TemporaryDirectory() as folder, _service(Path(folder)) as (address, process):
        most = _load(address, seconds, 0)
        before = _cpu_s(process)
        steady = _load(address, seconds, rate)
        cpu_s = _cpu_s(process) - before
        late = sorted(steady.late_us)
        if not late:
            raise Unavailable("no call was answered")
        return Measured(
            calls_a_second=most.calls / most.seconds,
            rate=rate,
            p50_ms=_percentile(late, 50),
            p99_ms=_percentile(late, 99),
            cpu_us=cpu_s * 1e6 / len(late) * seconds / (seconds + 1),  # the client warms up for a second
            wrong=most.wrong + steady.wrong,
        )


def _percentile(late_us: list[int], percent: int) -> float:
    return late_us[min(len(late_us) - 1, len(late_us) * percent // 100)] / 1e3


def _load(address: str, seconds: float, rate: float) -> _Load:
    command = [sys.executable, "-m", "bench.limit_cluster.envoy_client", address, str(seconds), str(rate)]
    done = subprocess.run(command, capture_output=True, timeout=seconds + _START_S, check=False)
    if done.returncode:
        raise Unavailable(f"the client failed: {done.stderr.decode(errors='replace')[-500:]}")
    return msgspec.json.decode(done.stdout, type=_Load)


@contextmanager
def _service(folder: Path) -> Iterator[tuple[str, int]]:
    contracts, log = folder / "contracts.toml", folder / "log"
    contracts.write_text(_CONTRACTS)
    command = [sys.executable, "-m", "srtm", "limit", "serve", "--http-address", "127.0.0.1:0"]
    command += ["--grpc-address", "127.0.0.1:0", "--contracts", str(contracts)]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield _address(log), process.pid
        finally:
            process.terminate()


def _address(log: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        words = log.read_text(errors="replace").split()
        found = [word.removeprefix("grpc=") for word in words if word.startswith("grpc=")]
        if found:
            return found[0]
        time.sleep(0.05)
    raise Unavailable(
        f"the limit service did not start within {_START_S:g} s: {log.read_text(errors='replace')[-500:]}"
    )


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
