"""What ten thousand idle clients with a subscription each add to the broker's resident memory.

Counted as in ``rows.memory``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench.comparisons.mqtt.started import OURS, THEIRS, in_thread, started
from bench.comparisons.rows.memory import CONNECTIONS, FIRST, SPARE_DESCRIPTORS, kib_each
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.mqtt_client import Client
from bench.harness.machine.threads import allow_descriptors
from bench.harness.results.comparison import Better, Bound, Figure, Row, Sample, Turn
from bench.harness.systems.systems import System

LIMIT_KIB = 1.2


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    allow_descriptors(CONNECTIONS + SPARE_DESCRIPTORS)
    async with started(name, turn, folder) as system:
        first, last = await in_thread(_crowd, system)
    return sample_of(name, first, last)


def _crowd(system: System) -> tuple[int, int]:
    """Memory with the first and with all of the clients, bytes."""
    with ExitStack() as held:
        for number in range(CONNECTIONS):
            if number == FIRST:
                first = system.resident_bytes()
            client = held.enter_context(Client.at(system.tcp_address, b"idle-%05d" % number))
            client.subscribe([b"idle/%05d/command" % number])
        return first, system.resident_bytes()


def sample_of(system: str, first_bytes: int, all_bytes: int) -> Sample:
    return Sample(system, {"client_kib": kib_each(first_bytes, all_bytes)})


ROW = Row(
    name="idle",
    claim="Memory (RSS) of an idle client with one subscription, of 10,000 with clean sessions.",
    systems=(OURS, THEIRS),
    figures=(Figure("client_kib", "memory an idle client, KiB", 2, drawn=True, better=Better.LOWER),),
    targets=(Bound("client_kib", "memory an idle client", LIMIT_KIB, "KiB"),),
    begin=in_turn(_sample),
    note="Patterns have three levels; the one in the middle is the client's own.",
)
