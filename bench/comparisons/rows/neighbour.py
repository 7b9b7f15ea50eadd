"""An unlimited topic beside one that gets ten times what it is allowed: nothing of that may be felt.

5,000 msg/s to the unlimited topic, measured; 1,000 msg/s to its neighbour on the same broker, by publishers of their
own: *limited* to 100 msg/s (what is over waits), *unlimited* (the same traffic: what it costs without a limit), or
*quiet* (none). What the limit does is limited / unlimited; what the traffic does is in both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec

from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import in_turn, started
from bench.harness.cluster_runs.broker_api import put_bucket
from bench.harness.load.run import RunResult, run_plan
from bench.harness.results.comparison import Better, Figure, NoneOf, NoWorse, Row, Sample, Turn
from bench.harness.systems.systems import System
from srtm.concurrency.background import background_nursery

PUBLISHERS, NEIGHBOURS = 500, 100
NEIGHBOUR = "neighbour"
ALLOWED = 0.1 * NEIGHBOURS * steady.RATE_PER_S
BURST = 10.0
LIMITED, UNLIMITED, QUIET = "limited", "unlimited", "quiet"


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started("srtm", turn, folder) as system:
        if name == LIMITED:
            await put_bucket(system.http_address, NEIGHBOUR, ALLOWED, BURST)
        asked = steady.plan(system.tcp_address, turn, publishers=PUBLISHERS)
        send = partial(run_plan, asked, name=f"neighbour {name}")
        result = await (send() if name == QUIET else _beside(system, turn, send))
    return sample_of(name, result)


def sample_of(name: str, result: RunResult) -> Sample:
    values = {key: getattr(result, key) for key in ("p50_ms", "p99_ms", "p999_ms", "lost", "lateness_p99_ms")}
    return Sample(name, values, result.reasons)


async def _beside(system: System, turn: Turn, send: Callable[[], Awaitable[RunResult]]) -> RunResult:
    """The neighbour's run is longer than the one that counts, and ends with it."""
    theirs = steady.plan(system.tcp_address, turn, publishers=NEIGHBOURS)
    theirs = msgspec.structs.replace(theirs, topic=NEIGHBOUR, duration_s=10 * turn.seconds, seed=turn.seed + 1)
    async with background_nursery() as nursery:
        nursery.start_soon(run_plan, theirs)
        return await send()


SYSTEMS = (LIMITED, UNLIMITED, QUIET)
ROW = Row(
    name="neighbour",
    claim="p99 of an unlimited topic (5,000 msg/s) while its neighbour, sent 1,000 msg/s, is limited to a tenth of it.",
    systems=SYSTEMS,
    figures=(
        Figure("p50_ms", "p50, ms", 3, better=Better.LOWER),
        Figure("p99_ms", "p99 of the unlimited topic, ms", 3, drawn=True, better=Better.LOWER),
        Figure("p999_ms", "p99.9, ms", 3),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("lost", "messages lost beside a limited neighbour", (LIMITED,)),
        NoWorse("p99_ms", "p99, neighbour", UNLIMITED, LIMITED),
        NoWorse("p99_ms", "p99, neighbour", QUIET, LIMITED),
    ),
    begin=in_turn(_sample),
)
