"""What ten thousand idle clients with a subscription each add to the broker's resident memory.

The first hundred pay for what is allocated once and do not count. The clients live in this process, the broker in its
own. Kernel socket buffers are not the broker's memory and are not counted.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import trio

from bench.comparisons.mqtt.started import OURS, THEIRS, started
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.mqtt_client import Client
from bench.harness.machine.threads import allow_descriptors
from bench.harness.results.comparison import Better, Bound, Figure, Row, Sample, Turn
from bench.harness.systems.systems import System
from srtm.errors import Unavailable

CLIENTS = 10_000
FIRST = 100
SPARE_DESCRIPTORS = 200
LIMIT_KIB = 1.2


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    allow_descriptors(CLIENTS + SPARE_DESCRIPTORS)
    async with started(name, turn, folder) as system:
        try:
            first, last = await trio.to_thread.run_sync(partial(_crowd, system, CLIENTS))
        except OSError as error:
            raise Unavailable(f"a client could not be held: {error}") from error
    return sample_of(name, first, last)


def _crowd(system: System, clients: int) -> tuple[int, int]:
    """Memory with the first and with all of them, bytes."""
    with ExitStack() as held:
        for number in range(clients):
            if number == FIRST:
                first = system.resident_bytes()
            client = held.enter_context(Client.at(system.tcp_address, b"idle-%05d" % number))
            client.subscribe([b"idle/%05d/command" % number])
        return first, system.resident_bytes()


def sample_of(system: str, first_bytes: int, all_bytes: int) -> Sample:
    return Sample(system, {"client_kib": (all_bytes - first_bytes) / (CLIENTS - FIRST) / 1024})


ROW = Row(
    name="idle",
    claim="Memory (RSS) of an idle client with one subscription, of 10,000 with clean sessions.",
    systems=(OURS, THEIRS),
    figures=(Figure("client_kib", "memory an idle client, KiB", 2, drawn=True, better=Better.LOWER),),
    targets=(Bound("client_kib", "memory an idle client", LIMIT_KIB, "KiB"),),
    begin=in_turn(_sample),
    note="Patterns of three levels, the one in the middle of the client alone.",
)
