"""10,000 msg/s, far below what any of them carries: what a message costs, and how long it takes.

1,000 publishers at 10 msg/s (Poisson, 100 bytes), one subscriber that asks for no output buffering.
"""

from __future__ import annotations

from pathlib import Path

from bench.comparisons.rows.turns import in_turn, started
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.run import RunResult, run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn
from bench.harness.results.results import histogram_ms, merged

PUBLISHERS = 1_000
RATE_PER_S = 10.0
TOPIC = "bench-nsqd"


def plan(address: str, turn: Turn, publishers: int = PUBLISHERS) -> Plan:
    return Plan(
        topic=TOPIC,
        targets=[address],
        publishers=modelled([0] * publishers, RATE_PER_S),
        subscribers=[Subscriber(target=0)],
        duration_s=turn.seconds,
        seed=turn.seed,
    )


def sample_of(system: str, result: RunResult, cpu_us: float) -> Sample:
    return Sample(
        system,
        {
            "cpu_us": cpu_us,
            "p50_ms": result.p50_ms,
            "p99_ms": result.p99_ms,
            "p999_ms": result.p999_ms,
            "lost": result.lost,
            "duplicates": result.duplicates,
            "lateness_p99_ms": result.lateness_p99_ms,
            "lateness_p999_ms": histogram_ms(merged([result.histograms.lateness]), 99.9),
            "offered": result.offered,
            "sent": result.sent,
            "received": result.received,
        },
        result.reasons,
    )


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started(name, turn, folder) as system:
        meter = CpuMeter(system)
        result = await run_plan(plan(system.tcp_address, turn), meter.look, name=f"steady {name}")
    return sample_of(name, result, meter.us_per_message())


SYSTEMS = ("srtm", "nsqd", "floor")
ROW = Row(
    name="steady",
    claim="10,000 msg/s (1,000 publishers x 10 msg/s, Poisson, 100 B, one subscriber): what a message costs and takes.",
    systems=SYSTEMS,
    figures=(
        Figure("cpu_us", "CPU a message at 10,000 msg/s, us", 1, drawn=True, better=Better.LOWER),
        Figure("p50_ms", "p50, ms", 3, better=Better.LOWER),
        Figure("p99_ms", "p99 at 10,000 msg/s, ms", 3, drawn=True, better=Better.LOWER),
        Figure("p999_ms", "p99.9 at 10,000 msg/s, ms", 3, drawn=True),
        Figure("lost", "messages lost", 0),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
        Figure("lateness_p999_ms", "generator's lateness p99.9, ms", 3),
    ),
    targets=(
        NoneOf("lost", "messages lost at 10,000 msg/s"),
        Ratio("cpu_us", "CPU a message at 10,000 msg/s", "nsqd", at_most=0.35),
        Ratio("cpu_us", "CPU a message at 10,000 msg/s", "floor", at_most=1.25),
        Ratio("p99_ms", "p99 at 10,000 msg/s", "nsqd", at_most=0.5),
        Ratio("p999_ms", "p99.9 at 10,000 msg/s", "floor", at_most=1.2),
    ),
    begin=in_turn(_sample),
    note="Where the generator's own p99.9 of lateness is more than a fifth of a p99.9, that p99.9 is the machine's as "
    "much as the system's, and the ratio says little.",
)
