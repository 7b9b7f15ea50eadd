"""Envoy's rate limit service under load of the stock gRPC client: calls a second, and how late answers are."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from bench.harness.systems.systems import System, free_addresses
from bench.limit_peers.servers import limit_service
from srtm.errors import Unavailable
from srtm.operations.limit_load import quantile

LONGER_S = 60.0  # than its load a client may take, to start and for its last answers
CONTRACTS = """
[[contracts]]
namespace = "edge"
subject = "remote_address=*"
policies = [{ name = "burst", rate = 1e6, burst = 1e6 }]
"""


class Measured(NamedTuple):
    """``rate``: calls a second that were due, 0: as many as go; ``cpu_us``: of the service, for a call."""

    rate: float
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    wrong: int


class _Load(msgspec.Struct):
    calls: int
    seconds: float
    wrong: int
    late_us: list[int]


async def measure(folder: Path, seconds: float, rates: Sequence[float]) -> list[Measured]:
    """Start a service, and load it at one rate after the other; 0: 64 calls are always open. Raises Unavailable."""
    if importlib.util.find_spec("grpc") is None:
        raise Unavailable("the stock gRPC client is not here: pip install grpcio")
    grpc, _ = free_addresses()
    async with limit_service(folder, CONTRACTS, "--grpc-address", grpc) as service:
        return [await _measured(service, grpc, seconds, rate) for rate in rates]


async def _measured(service: System, address: str, seconds: float, rate: float) -> Measured:
    before = service.cpu_s()
    load = await _load(address, seconds, rate)
    cpu_s = service.cpu_s() - before
    if not load.late_us:
        raise Unavailable("no call was answered")
    return Measured(
        rate=rate,
        per_second=load.calls / load.seconds,
        p50_ms=quantile(load.late_us, 0.5) / 1e3,
        p99_ms=quantile(load.late_us, 0.99) / 1e3,
        cpu_us=cpu_s * 1e6 / load.calls * seconds / (seconds + 1),  # the client warms up for a second
        wrong=load.wrong,
    )


async def _load(address: str, seconds: float, rate: float) -> _Load:
    command = [sys.executable, "-m", "bench.limit_cluster.envoy_client", address, str(seconds), str(rate)]
    with trio.move_on_after(seconds + LONGER_S):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode:
            raise Unavailable(f"the client failed: {done.stderr.decode(errors='replace')[-500:]}")
        return msgspec.json.decode(done.stdout, type=_Load)
    raise Unavailable(f"the client did not end within {seconds + LONGER_S:g} s")
