"""MQTT over a link: publishers at one broker, the subscriber at another one of its cluster, beside both at one broker.

10,000 msg/s of QoS 1 (1,000 publishers x 10 msg/s, Poisson, 100 bytes), one subscriber of QoS 1 with a clean session.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.run import run_plan
from bench.harness.results.comparison import Better, Figure, NoneOf, Ratio, Row, Sample, Turn
from bench.harness.systems.peer_servers import IN_FLIGHT
from srtm.cluster.supervisor import cluster
from srtm.errors import Unavailable

ONE, TWO = "one hop", "two hops"
MCAP = 100_000.0  # msg/s: no placement has part in it
OPTIONS = ("--mqtt-max-in-flight", str(IN_FLIGHT))


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with cluster(
        brokers=2, mcap=MCAP, data=folder, mqtt=True, broker_options=OPTIONS, program=turn.build.program
    ) as running:
        near, far = (place.mqtt_address for place in running.brokers)
        if near is None or far is None:
            raise Unavailable("a broker has no MQTT port")
        plan = msgspec.structs.replace(
            steady.plan(near, turn), protocol="mqtt", qos=1, subscribe_at=[far if name == TWO else near]
        )
        result = await run_plan(plan, name=f"links {name}")
    return steady.sample_of(name, result, 0.0)


ROW = Row(
    name="links",
    claim="10,000 msg/s of MQTT, QoS 1: publishers and subscriber at one broker, and at two that are linked.",
    systems=(TWO, ONE),
    figures=(
        Figure("p50_ms", "p50, ms", 3, drawn=True, better=Better.LOWER),
        Figure("p99_ms", "p99, ms", 3, drawn=True, better=Better.LOWER),
        Figure("lost", "messages lost", 0),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("lost", "messages lost over a link", (TWO, ONE)),
        Ratio("p50_ms", "p50 over a link", ONE, at_most=2.2, ours=TWO),
        Ratio("p99_ms", "p99 over a link", ONE, at_most=2.2, ours=TWO),
    ),
    begin=in_turn(_sample),
    note=f"Two brokers run in both cases. The subscriber may have {IN_FLIGHT:,} messages in flight, as in other rows.",
)
