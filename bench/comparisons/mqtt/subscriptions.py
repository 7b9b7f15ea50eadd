"""A million subscriptions: what each of them takes of the broker's memory, and what they cost a message.

1,000 clients with 1,000 patterns each, of four levels, and ten clients whose patterns match one name, most of them with
wildcards. Messages of that name are sent in batches, each when the ten have all of the one before, with the ten alone
and again with the million beside them. The rest of a message's way (read, ten deliveries) is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.comparisons.mqtt.started import OURS, THEIRS, in_thread, started
from bench.comparisons.rows.memory import SPARE_DESCRIPTORS
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.mqtt_client import Client, publish_packet
from bench.harness.machine.threads import allow_descriptors
from bench.harness.results.comparison import Better, Bound, Figure, Row, Sample, Turn
from bench.harness.systems.systems import System

CLIENTS, EACH = 1_000, 1_000
AT_ONCE = 100  # patterns of a SUBSCRIBE
NAME = b"plant/7/sensor/3"
MATCHING = (
    b"plant/7/sensor/3",
    b"plant/+/sensor/3",
    b"plant/7/+/3",
    b"plant/7/sensor/+",
    b"+/7/sensor/3",
    b"plant/+/+/3",
    b"plant/7/sensor/#",
    b"plant/7/#",
    b"plant/#",
    b"#",
)
BATCH, BATCHES = 100, 300
LIMIT_US, LIMIT_BYTES = 5.0, 256


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    allow_descriptors(CLIENTS + SPARE_DESCRIPTORS)
    async with started(name, turn, folder) as system:
        return Sample(name, await in_thread(_measure, system))


def _measure(system: System) -> dict[str, float]:
    with ExitStack() as held:
        few = [held.enter_context(Client.at(system.tcp_address, b"matching-%d" % n)) for n in range(len(MATCHING))]
        for client, pattern in zip(few, MATCHING, strict=True):
            client.subscribe([pattern])
        publisher = held.enter_context(Client.at(system.tcp_address, b"publisher"))
        _cpu_us(system, publisher, few)  # what is allocated once
        alone = _cpu_us(system, publisher, few)
        many = [held.enter_context(Client.at(system.tcp_address, b"many-%04d" % n)) for n in range(CLIENTS)]
        before = system.resident_bytes()
        for number, client in enumerate(many):
            patterns = [b"plant/%d/sensor/%d/state" % (number, place) for place in range(EACH)]
            for first in range(0, EACH, AT_ONCE):
                client.subscribe(patterns[first : first + AT_ONCE])
        taken = system.resident_bytes() - before
        beside = _cpu_us(system, publisher, few)
    return {
        "subscription_bytes": taken / (CLIENTS * EACH),
        "alone_us": alone,
        "beside_us": beside,
        "more_us": beside - alone,
    }


def _cpu_us(system: System, publisher: Client, subscribers: Sequence[Client]) -> float:
    """Processor time of a message of the name."""
    one = publish_packet(NAME, b"x" * 64)
    before_s = system.cpu_s()
    for _ in range(BATCHES):
        publisher.socket.sendall(one * BATCH)
        for subscriber in subscribers:
            subscriber.discard(len(one) * BATCH)
    return 1e6 * (system.cpu_s() - before_s) / (BATCH * BATCHES)


ROW = Row(
    name="subscriptions",
    claim="1,000,000 subscriptions, and a name that ten others match: memory of each, processor time of a message.",
    systems=(OURS, THEIRS),
    figures=(
        Figure("subscription_bytes", "memory a subscription, bytes", 0, drawn=True, better=Better.LOWER),
        Figure("alone_us", "CPU a message to ten, nobody else there, us", 2),
        Figure("beside_us", "CPU a message to ten of a million, us", 2, drawn=True, better=Better.LOWER),
        Figure("more_us", "what the million adds, us", 2),
    ),
    targets=(
        Bound("subscription_bytes", "memory a subscription", LIMIT_BYTES, "B"),
        Bound("more_us", "what a million subscriptions add to a message", LIMIT_US, "us"),
    ),
    begin=in_turn(_sample),
    note="Messages of 64 bytes in batches of 100, each sent when all ten have read the one before.",
)
