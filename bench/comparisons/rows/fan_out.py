"""One topic, 100 channels with one subscriber each: deliveries per second when the publisher waits for nothing else.

Messages of 200 bytes in MPUBs of 200; the next is sent when all but 400 messages have reached every channel, so that
nothing piles up. Brokers may collect output as they do by default. One thread publishes, takes and acknowledges.
"""

from __future__ import annotations

from pathlib import Path

from bench.comparisons.rows.turns import in_turn, started
from bench.harness.load.flood import FanOut, FloodPlan, FloodResult, run_flood
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn

CHANNELS = 100


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started(name, turn, folder) as system:
        task = FanOut(topic="fan-out", channels=CHANNELS, duration_s=max(1.0, turn.seconds / 2))
        return sample_of(name, await run_flood(FloodPlan(target=system.tcp_address, task=task)))


def sample_of(system: str, result: FloodResult) -> Sample:
    values = {"deliveries_per_s": result.per_s, "busy": result.busy, "garbled": float(not result.intact)}
    return Sample(system, values)


SYSTEMS = ("srtm", "nsqd", "floor")
ROW = Row(
    name="fan-out",
    claim="One topic, 100 channels, one subscriber each: deliveries per second at saturation.",
    systems=SYSTEMS,
    figures=(
        Figure("deliveries_per_s", "deliveries, per s", 0, drawn=True, better=Better.HIGHER),
        Figure("busy", "share of a core that the clients used", 2),
    ),
    targets=(
        NoneOf("garbled", "channels that did not get each message once", SYSTEMS),
        Ratio("deliveries_per_s", "deliveries to 100 channels", "nsqd", at_least=3.0),
    ),
    begin=in_turn(_sample),
)
