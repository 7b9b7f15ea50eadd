"""As fast as it goes: MPUBs of 200 x 200 bytes in, then one subscriber takes what was left there.

As nsqd's own benchmark: the channel is there first and each publisher has one MPUB outstanding. ``saturated``: the
queues hold everything in memory (``--mem-queue-size``). ``overflow``: both brokers with their defaults, of which all
but the first 10,000 messages go through the disk. The floor has no channels: what waits, waits in its one output
buffer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.broker_api import create_channel
from bench.comparison import Figure, NoneOf, Ratio, Row, Sample, Turn
from bench.flood import BATCH, FloodPlan, FloodResult, Publish, Read, run_flood
from bench.rows.turns import in_turn, started

TOPIC, CHANNEL = "saturated", "bench"
MESSAGES_A_SECOND = 100_000  # of the length asked for
FEWEST, MOST = 200_000, 1_000_000  # what waits must fit into the memory that our broker allows itself


def messages(seconds: float) -> int:
    """How many: whole batches."""
    return max(FEWEST, min(MOST, int(seconds * MESSAGES_A_SECOND) // BATCH * BATCH))


async def _sample(name: str, turn: Turn, folder: Path, in_memory: bool) -> Sample:
    count = messages(turn.seconds)
    room = ("--mem-queue-size", str(count)) if in_memory else ()
    async with started(name, folder, *room) as system:
        if name != "floor":
            await create_channel(system.http_address, TOPIC, CHANNEL)
        before_s = system.cpu_s()
        published = await run_flood(FloodPlan(target=system.tcp_address, task=Publish(topic=TOPIC, messages=count)))
        between_s = system.cpu_s()
        reading = Read(topic=TOPIC, channel=CHANNEL, messages=count)
        taken = await run_flood(FloodPlan(target=system.tcp_address, task=reading))
        return sample_of(name, published, taken, (between_s - before_s, system.cpu_s() - between_s))


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


FIGURES = (
    Figure("publish_per_s", "published, msg/s", 0, drawn=True),
    Figure("read_per_s", "read by one subscriber, msg/s", 0, drawn=True),
    Figure("publish_cpu_us", "CPU a message published, us", 2),
    Figure("read_cpu_us", "CPU a message read, us", 2),
    Figure("publisher_busy", "share of a core that the publisher used", 2),
    Figure("reader_busy", "share of a core that the subscriber used", 2),
)
SYSTEMS = ("srtm", "nsqd", "floor")
ROW = Row(
    name="saturated",
    claim="Saturated: MPUBs of 200 x 200 B, then one subscriber takes the backlog.",
    systems=SYSTEMS,
    figures=FIGURES,
    targets=(
        NoneOf("garbled", "backlogs that were not what was published", SYSTEMS),
        Ratio("publish_per_s", "published, saturated", "nsqd", at_least=3.0),
        Ratio("read_per_s", "read by one subscriber, saturated", "nsqd", at_least=3.0),
    ),
    begin=in_turn(SYSTEMS, partial(_sample, in_memory=True)),
    note="Both brokers with a --mem-queue-size that holds all messages, the channel made first; two publishers with "
    "one MPUB outstanding each. The subscriber takes default output buffering, which doubles what nsqd delivers.",
)
OVERFLOWING = ("srtm", "nsqd")
OVERFLOW = Row(
    name="overflow",
    claim="The same with the defaults of both brokers: beyond 10,000 messages the queues go through the disk.",
    systems=OVERFLOWING,
    figures=tuple(replace(figure, drawn=False) for figure in FIGURES),
    targets=(NoneOf("garbled", "backlogs through the disk that were not what was published", OVERFLOWING),),
    begin=in_turn(OVERFLOWING, partial(_sample, in_memory=False)),
)
