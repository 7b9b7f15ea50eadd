"""Ten thousand clients come at once: how long until all are answered, and what that does to the 10,000 msg/s there.

Quiet and crowded are two runs on one process with the same traffic. Only messages due while clients were still coming
count for the latter. The thread that makes the crowd lets every other thread go first: else it would take the processor
from the generator, whose lateness would be booked on the broker. Under a real-time priority (``chrt -r 10``) it keeps
the lowest of them: behind broker and generator, and like them before the machine's ordinary work, which would otherwise
decide how long accepting takes.

Nothing is judged by nsqd here: it keeps the generator's connections so busy meanwhile that the generator is late by a
fifth of nsqd's p99. So its samples count all the same, with that lateness beside them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import trio

from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import in_turn, started
from bench.harness.load.flood import Connect, FloodPlan, FloodResult, held_flood
from bench.harness.load.run import RunProgress, RunResult, deliveries, run_plan
from bench.harness.load.workload import Plan
from bench.harness.machine.threads import allow_descriptors
from bench.harness.results.comparison import Better, Bound, Figure, NoneOf, Row, Sample, Turn
from bench.harness.results.intervals import percentile_ms
from bench.harness.systems.systems import System
from srtm.concurrency.background import background_nursery

CONNECTIONS = 10_000
SPARE_DESCRIPTORS = 300
SHORTEST_S = 3.0
MOST = 2.0  # times the quiet p99
SHOWN = "nsqd"  # beside the others, whatever the generator's lateness


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    allow_descriptors(CONNECTIONS + steady.PUBLISHERS + SPARE_DESCRIPTORS)
    seconds = max(SHORTEST_S, turn.seconds / 2)
    async with started(name, turn, folder) as system:
        asked = msgspec.structs.replace(steady.plan(system.tcp_address, turn), duration_s=seconds, keep_each=True)
        quiet = await run_plan(asked, name=f"crowd {name} quiet")
        return sample_of(name, quiet, *await _crowded(system, asked, f"crowd {name}"))


async def _crowded(system: System, asked: Plan, name: str) -> tuple[RunResult, FloodResult]:
    """The same traffic; the crowd comes when the measured part begins, and stays to its end."""
    measuring = trio.Event()
    arrived, arrival = trio.open_memory_channel[FloodResult](1)

    def look(progress: RunProgress) -> None:
        if progress.phase == "measuring":
            measuring.set()

    async def crowd() -> None:
        await measuring.wait()
        task = Connect(connections=CONNECTIONS, yielding=True)
        async with held_flood(FloodPlan(target=system.tcp_address, task=task)) as result:
            await arrived.send(result)
            await trio.sleep_forever()

    async with background_nursery() as nursery:
        nursery.start_soon(crowd)
        result = await run_plan(asked, look, name=name)
        return result, await arrival.receive()


def sample_of(system: str, quiet: RunResult, crowded: RunResult, crowd: FloodResult) -> Sample:
    due_ns, latency_ns = deliveries(crowded)
    meanwhile_ns = latency_ns[(due_ns >= crowd.started_ns) & (due_ns <= crowd.ended_ns)]
    if not len(meanwhile_ns):
        return Sample(system, {}, ["no message was due while the crowd came"])
    p99_ms = percentile_ms(meanwhile_ns, 99)
    values = {
        "accept_s": crowd.elapsed_s,
        "quiet_p99_ms": quiet.p99_ms,
        "crowded_p99_ms": p99_ms,
        "times_quiet": p99_ms / quiet.p99_ms if quiet.p99_ms else float("inf"),
        "lost": quiet.lost + crowded.lost,
        "lateness_p99_ms": crowded.lateness_p99_ms,
    }
    return Sample(system, values, [] if system == SHOWN else [*quiet.reasons, *crowded.reasons])


SYSTEMS = ("srtm", "nsqd", "floor")
ROW = Row(
    name="crowd",
    claim="10,000 connections at once: the time to accept them all, and p99 of the 10,000 msg/s that flow meanwhile.",
    systems=SYSTEMS,
    figures=(
        Figure("accept_s", "time to accept 10,000 connections, s", 2, drawn=True, better=Better.LOWER),
        Figure("quiet_p99_ms", "p99 before, ms", 3, better=Better.LOWER),
        Figure("crowded_p99_ms", "p99 meanwhile, ms", 3, better=Better.LOWER),
        Figure("times_quiet", "p99 meanwhile / p99 before", 2, drawn=True),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("lost", "messages lost while 10,000 connected"),
        Bound("times_quiet", "p99 while 10,000 connect, times the quiet one", MOST, "x"),
    ),
    begin=in_turn(_sample),
    note="256 handshakes under way at once, made by a thread that lets broker and generator go first "
    "(SCHED_IDLE; where they have a real-time priority, the lowest of these). nsqd is shown "
    "however late the generator was.",
)
