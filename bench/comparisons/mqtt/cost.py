"""What a message costs at 20,000 msg/s, in processor time of the broker, at each quality of service.

2,000 publishers at 10 msg/s (Poisson, 100 bytes), one subscriber with a clean session.
"""

from __future__ import annotations

from pathlib import Path

from bench.comparisons.mqtt.started import MOSQUITTO, OURS, THEIRS, plan, started
from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.run import run_plan
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn

PUBLISHERS = 2_000
KINDS = tuple(f"-qos{qos}" for qos in range(3))
SYSTEMS = tuple(f"{name}{kind}" for kind in KINDS for name in (OURS, THEIRS))
ZERO, ONE, TWO = (f"{OURS}{kind}" for kind in KINDS)


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started(name, turn, folder) as system:
        meter = CpuMeter(system)
        asked = plan(system.tcp_address, turn, PUBLISHERS, qos=int(name[-1]))
        result = await run_plan(asked, meter.look, name=f"mqtt cost {name}")
    found = steady.sample_of(name, result, meter.us_per_message())
    return Sample(name, found.values)  # processor time does not depend on how late the generator was


def _ratio(ours: str, theirs: str, at_most: float) -> Ratio:
    return Ratio("cpu_us", "CPU a message at 20,000 msg/s", theirs, at_most=at_most, ours=ours)


ROW = Row(
    name="cost",
    claim="20,000 msg/s (2,000 publishers x 10 msg/s, Poisson, 100 B, one subscriber): what a message costs.",
    systems=SYSTEMS,
    figures=(
        Figure("cpu_us", "CPU a message at 20,000 msg/s, us", 1, drawn=True, better=Better.LOWER),
        Figure("p50_ms", "p50, ms", 3, better=Better.LOWER),
        Figure("p99_ms", "p99, ms", 3, better=Better.LOWER),
        Figure("lost", "messages lost", 0),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("lost", "messages lost at 20,000 msg/s", (ZERO, ONE, TWO)),
        _ratio(ZERO, f"{THEIRS}-qos0", 1.0),
        _ratio(ONE, f"{THEIRS}-qos1", 0.7),
        _ratio(TWO, ONE, 1.7),
    ),
    begin=in_turn(_sample),
    note=f"A late generator does not spoil a round here: it sends the same messages, and processor time is judged. "
    f"Where it is late, messages come in larger bundles, which cost all systems less. {MOSQUITTO}",
)
