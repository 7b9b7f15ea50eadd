"""What ten thousand idle connections add to the broker's resident memory.

The first hundred pay for what is allocated once and do not count. The clients live in this process, the broker in its
own. Kernel socket buffers are not the broker's memory and are not counted.
"""

from __future__ import annotations

from pathlib import Path

from bench.comparisons.rows.turns import in_turn, started
from bench.harness.load.flood import Connect, FloodPlan, held_flood
from bench.harness.machine.threads import allow_descriptors
from bench.harness.results.comparison import Better, Bound, Figure, Row, Sample, Turn

CONNECTIONS = 10_000
FIRST = 100
SPARE_DESCRIPTORS = 200
LIMIT_KIB = 4.0


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    allow_descriptors(CONNECTIONS + SPARE_DESCRIPTORS)
    async with started(name, turn, folder) as system:
        first = FloodPlan(target=system.tcp_address, task=Connect(connections=FIRST))
        others = FloodPlan(target=system.tcp_address, task=Connect(connections=CONNECTIONS - FIRST))
        async with held_flood(first):
            before = system.resident_bytes()
            async with held_flood(others):
                return sample_of(name, before, system.resident_bytes())


def sample_of(system: str, first_bytes: int, all_bytes: int) -> Sample:
    return Sample(system, {"connection_kib": kib_each(first_bytes, all_bytes)})


def kib_each(first_bytes: int, all_bytes: int) -> float:
    """Memory that each connection after the first ones adds, KiB."""
    return (all_bytes - first_bytes) / (CONNECTIONS - FIRST) / 1024


SYSTEMS = ("srtm", "nsqd", "floor")
ROW = Row(
    name="memory",
    claim="Memory (RSS) of an idle connection, of 10,000.",
    systems=SYSTEMS,
    figures=(Figure("connection_kib", "memory an idle connection, KiB", 2, drawn=True, better=Better.LOWER),),
    targets=(Bound("connection_kib", "memory an idle connection", LIMIT_KIB, "KiB"),),
    begin=in_turn(_sample),
)
