"""What a token bucket costs a message that it never holds up: our broker with one, and without, in turns.

The traffic of ``steady``; the bucket's rate and burst are far above it.
"""

from __future__ import annotations

from pathlib import Path

from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import in_turn, started
from bench.harness.cluster_runs.broker_api import put_bucket
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.run import run_plan
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn

RATE = BURST = 1e6
LIMITED, UNLIMITED = "bucket", "no bucket"


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started("srtm", turn, folder) as system:
        if name == LIMITED:
            await put_bucket(system.http_address, steady.TOPIC, RATE, BURST)
        meter = CpuMeter(system)
        result = await run_plan(steady.plan(system.tcp_address, turn), meter.look, name=f"bucket {name}")
    return steady.sample_of(name, result, meter.us_per_message())


SYSTEMS = (LIMITED, UNLIMITED)
ROW = Row(
    name="bucket",
    claim="The cost of a token bucket on the path: CPU a message at 10,000 msg/s with one that never bites.",
    systems=SYSTEMS,
    figures=(
        Figure("cpu_us", "CPU a message with and without a bucket, us", 2, drawn=True, better=Better.LOWER),
        Figure("p99_ms", "p99, ms", 3, better=Better.LOWER),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("lost", "messages lost with a bucket", (LIMITED,)),
        Ratio("cpu_us", "CPU a message", UNLIMITED, at_most=1.05, ours=LIMITED),
    ),
    begin=in_turn(_sample),
)
