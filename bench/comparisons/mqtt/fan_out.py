"""One topic, 1,000 subscribers of QoS 0: what a delivery costs, and how long the messages take to all of them.

Five publishers at 10 msg/s each (Poisson, 100 bytes): 50,000 deliveries a second.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.comparisons.mqtt.started import MOSQUITTO, OURS, THEIRS, plan, started
from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.run import run_plan
from bench.harness.load.workload import Subscriber
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn

SUBSCRIBERS, PUBLISHERS = 1_000, 5


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started(name, turn, folder) as system:
        meter = CpuMeter(system)
        everybody = [Subscriber(target=0, channel=f"subscriber-{number}") for number in range(SUBSCRIBERS)]
        asked = plan(system.tcp_address, turn, PUBLISHERS, qos=0)
        asked = msgspec.structs.replace(asked, subscribers=everybody)
        result = await run_plan(asked, meter.look, name=f"mqtt fan-out {name}")
    found = steady.sample_of(name, result, meter.us_per_message())
    return Sample(name, found.values, found.reasons)


ROW = Row(
    name="fan-out",
    claim="One topic, 1,000 subscribers, QoS 0, 50 msg/s: what a delivery costs and takes.",
    systems=(OURS, THEIRS),
    figures=(
        Figure("cpu_us", "CPU a delivery, us", 2, drawn=True, better=Better.LOWER),
        Figure("p50_ms", "p50 of all deliveries, ms", 3, better=Better.LOWER),
        Figure("p99_ms", "p99 of all deliveries, ms", 3, drawn=True, better=Better.LOWER),
        Figure("lost", "messages lost", 0),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("lost", "deliveries lost to 1,000 subscribers"),
        Ratio("cpu_us", "CPU a delivery to 1,000", THEIRS, at_most=1.0),
        Ratio("p99_ms", "p99 of deliveries to 1,000", THEIRS, at_most=1.0),
    ),
    begin=in_turn(_sample),
    note=f"One thread takes all 50,000 deliveries a second, and is part of what they take. {MOSQUITTO}",
)
