"""As fast as it goes: MPUBs of 200 x 200 bytes, each publisher with one outstanding, and one subscriber.

``saturated``: the subscriber reads while the publishers publish. ``in-turn``: it takes what they left when they are
done, as in nsqd's own benchmark: one half of the way at a time, a queue that only grows, then only shrinks. Both with
queues that hold everything in memory (``--mem-queue-size``). ``overflow``: in turn with the defaults of both brokers:
all but the first 10,000 messages go through the disk. The floor has no channels: what waits, waits in its one output
buffer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from bench.comparisons.rows.turns import in_turn, started
from bench.harness.cluster_runs.broker_api import create_channel
from bench.harness.load.flood import BATCH, FloodPlan, FloodResult, Publish, Read, run_flood
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn
from bench.harness.systems.systems import System

TOPIC, CHANNEL = "saturated", "bench"
MESSAGES_A_SECOND = 100_000  # of the length asked for
FEWEST, MOST = 200_000, 1_000_000  # what waits must fit into the memory that our broker allows itself


def messages(seconds: float) -> int:
    """How many: whole batches."""
    return max(FEWEST, min(MOST, int(seconds * MESSAGES_A_SECOND) // BATCH * BATCH))


@asynccontextmanager
async def _with_channel(name: str, turn: Turn, folder: Path, *options: str) -> AsyncIterator[System]:
    async with started(name, turn, folder, *options) as system:
        if name != "floor":
            await create_channel(system.http_address, TOPIC, CHANNEL)
        yield system


def _plans(system: System, count: int) -> tuple[FloodPlan, FloodPlan]:
    reading = Read(topic=TOPIC, channel=CHANNEL, messages=count)
    return (
        FloodPlan(target=system.tcp_address, task=Publish(topic=TOPIC, messages=count)),
        FloodPlan(target=system.tcp_address, task=reading),
    )


async def _at_once(name: str, turn: Turn, folder: Path) -> Sample:
    count = messages(turn.seconds)
    async with _with_channel(name, turn, folder, "--mem-queue-size", str(count)) as system:
        publishing, reading = _plans(system, count)
        before_s = system.cpu_s()
        results: dict[str, FloodResult] = {}

        async def flood(part: str, plan: FloodPlan) -> None:
            results[part] = await run_flood(plan)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, "read", reading)
            nursery.start_soon(flood, "published", publishing)
        return sample_at_once(name, results["published"], results["read"], system.cpu_s() - before_s)


async def _in_turn(name: str, turn: Turn, folder: Path, in_memory: bool) -> Sample:
    count = messages(turn.seconds)
    room = ("--mem-queue-size", str(count)) if in_memory else ()
    async with _with_channel(name, turn, folder, *room) as system:
        publishing, reading = _plans(system, count)
        before_s = system.cpu_s()
        published = await run_flood(publishing)
        between_s = system.cpu_s()
        taken = await run_flood(reading)
        return sample_of(name, published, taken, (between_s - before_s, system.cpu_s() - between_s))


def sample_at_once(system: str, published: FloodResult, taken: FloodResult, cpu_s: float) -> Sample:
    """``cpu_s``: of the broker, for both; what it publishes and what it delivers cannot be told apart."""
    values = {
        "publish_per_s": published.per_s,
        "read_per_s": taken.per_s,
        "cpu_us": 1e6 * cpu_s / taken.count,
        "publisher_busy": published.busy,
        "reader_busy": taken.busy,
        "garbled": float(not taken.intact),
    }
    return Sample(system, values)


def sample_of(system: str, published: FloodResult, taken: FloodResult, cpu_s: tuple[float, float]) -> Sample:
    values = {
        "publish_per_s": published.per_s,
        "read_per_s": taken.per_s,
        "publish_cpu_us": 1e6 * cpu_s[0] / published.count,
        "read_cpu_us": 1e6 * cpu_s[1] / taken.count,
        "publisher_busy": published.busy,
        "reader_busy": taken.busy,
        "garbled": float(not taken.intact),
    }
    return Sample(system, values)


PUBLISHED = Figure("publish_per_s", "published, msg/s", 0, drawn=True, better=Better.HIGHER)
READ = Figure("read_per_s", "read by one subscriber, msg/s", 0, drawn=True, better=Better.HIGHER)
BUSY = (
    Figure("publisher_busy", "share of a core that the publisher used", 2),
    Figure("reader_busy", "share of a core that the subscriber used", 2),
)
IN_TURN = (
    PUBLISHED,
    READ,
    Figure("publish_cpu_us", "CPU a message published, us", 2, better=Better.LOWER),
    Figure("read_cpu_us", "CPU a message read, us", 2, better=Better.LOWER),
    *BUSY,
)
SYSTEMS = ("srtm", "nsqd", "floor")
ROW = Row(
    name="saturated",
    claim="Saturated: MPUBs of 200 x 200 B while one subscriber reads.",
    systems=SYSTEMS,
    figures=(PUBLISHED, READ, Figure("cpu_us", "CPU a message, both ways, us", 2, better=Better.LOWER), *BUSY),
    targets=(
        NoneOf("garbled", "floods that did not arrive as they were published", SYSTEMS),
        Ratio("publish_per_s", "published, saturated", "nsqd", at_least=3.0),
        Ratio("read_per_s", "read by one subscriber, saturated", "nsqd", at_least=3.0),
    ),
    begin=in_turn(_at_once),
    note="Both brokers with a --mem-queue-size that holds all messages, the channel made first; two publishers with "
    "one MPUB outstanding each. The subscriber takes default output buffering, which doubles what nsqd delivers.",
)
APART = Row(
    name="in-turn",
    claim="The same one after the other: a backlog is published, then one subscriber takes it.",
    systems=SYSTEMS,
    figures=tuple(replace(figure, drawn=False) for figure in IN_TURN),
    targets=(NoneOf("garbled", "backlogs that were not what was published", SYSTEMS),),
    begin=in_turn(partial(_in_turn, in_memory=True)),
)
OVERFLOWING = ("srtm", "nsqd")
OVERFLOW = Row(
    name="overflow",
    claim="In turn with the defaults of both brokers: beyond 10,000 messages the queues go through the disk.",
    systems=OVERFLOWING,
    figures=APART.figures,
    targets=(
        NoneOf("garbled", "backlogs through the disk that were not what was published", OVERFLOWING),
        Ratio("publish_per_s", "published with the defaults", "nsqd", at_least=3.0),
        Ratio("read_per_s", "read by one subscriber with the defaults", "nsqd", at_least=3.0),
    ),
    begin=in_turn(partial(_in_turn, in_memory=False)),
)
