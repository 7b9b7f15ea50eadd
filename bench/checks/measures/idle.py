"""An idle connection costs the broker at most 8 KiB: the resident memory that ten thousand of them add.

The first hundred pay for what is allocated once and do not count. The clients live in this process, the broker in its
own, so that each has its own descriptors. Kernel socket buffers are not the broker's memory and are not counted.
"""

from __future__ import annotations

import resource
from contextlib import ExitStack
from pathlib import Path

from bench.harness.cluster_runs import nsq_socket
from bench.harness.results.verdict import Verdict, at_most
from bench.harness.systems.systems import System, bare_broker
from srtm.errors import Unavailable

CLAIM = "An idle connection costs the broker at most 8 KiB of memory."
LIMIT_KIB = 8.0
CONNECTIONS = 10_000
FIRST = 100
SPARE_DESCRIPTORS = 100


async def measure(folder: Path, seed: int, quick: bool) -> Verdict:  # noqa: ARG001 (nothing here is random)
    connections = 1_000 if quick else CONNECTIONS
    allow_descriptors(connections + SPARE_DESCRIPTORS)
    async with bare_broker(folder / "idle") as broker:
        return judge(connections, *_resident_bytes(broker, connections))


def judge(connections: int, first_bytes: int, all_bytes: int) -> Verdict:
    each_kib = (all_bytes - first_bytes) / (connections - FIRST) / 1024
    run = {"name": "idle", "brokers": 1, "connections": connections, "rss_first_bytes": first_bytes}
    return Verdict(
        name="idle",
        claim=CLAIM,
        checks=[at_most("resident memory a connection", each_kib, LIMIT_KIB, "KiB")],
        runs=[run | {"rss_all_bytes": all_bytes, "connection_kib": each_kib}],
    )


def allow_descriptors(needed: int) -> None:
    """Raise the soft limit, which child processes inherit. Raises Unavailable where the hard one is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(
            f"{needed} open files are needed and {hard} allowed: raise the limit (ulimit -Hn), then again"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _resident_bytes(broker: System, connections: int) -> tuple[int, int]:
    """With the first hundred, and with all. Each has been answered, so the broker has nothing left to do for it."""
    with ExitStack() as held:
        for number in range(FIRST):
            held.enter_context(nsq_socket.connect(broker.tcp_address, f"idle-{number}"))
        first = broker.resident_bytes()
        for number in range(FIRST, connections):
            held.enter_context(nsq_socket.connect(broker.tcp_address, f"idle-{number}"))
        return first, broker.resident_bytes()
