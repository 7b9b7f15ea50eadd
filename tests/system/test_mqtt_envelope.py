"""MQTT traffic at more than nine tenths of its topic's rate, on two brokers: no interval above the topic's envelope.

The checker is ``tests.faults.envelope``, which shares nothing with the engine. Publishers are clients of the load
generator (QoS 1, Poisson), each at the broker that it was assigned to.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from bench.harness.cluster_runs.assigned_traffic import plan_of, settled
from bench.harness.cluster_runs.placed_run import mqtt_addresses
from bench.harness.cluster_runs.trace import fetch_trace
from bench.harness.load.run import run_plan
from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import cluster
from tests.faults.envelope import Envelope, excess, worst_interval
from tests.system.running import srtm

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0
PUBLISHERS, EACH = 30, 20.0  # msg/s
OFFERED = PUBLISHERS * EACH
ENVELOPE = Envelope(rate=1.1 * OFFERED, burst=8.0)
SECONDS = 6.0
TOPIC = f"""
name = "heat"
rate = {ENVELOPE.rate}
burst = {ENVELOPE.burst}
mode = "static"
[mqtt]
filters = ["heat/+"]
[slo]
percentile = 99
latency_ms = 500
[[publishers]]
count = {PUBLISHERS}
rate = {EACH}
id_prefix = "heat-"
"""


async def test_no_interval_of_mqtt_traffic_on_two_brokers_is_above_the_envelope(tmp_path: Path) -> None:
    file = tmp_path / "heat.toml"
    file.write_text(TOPIC)
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=2, mcap=0.8 * OFFERED, data=tmp_path / "data", mqtt=True) as running:
            ended = await srtm("topic", "submit", str(file), distributor=running.distributor)
            assert (ended.returncode, ended.stderr) == (0, b"")
            async with DistributorClient(running.distributor) as client:
                await settled(client, "heat", within_s=PATIENCE_S, brokers=2)
                assigned = await client.publishers("heat")
            asked = plan_of(
                "heat",
                assigned,
                mqtt_addresses(running),
                seconds=SECONDS,
                warmup_s=0.0,
                seed=7,
                slo_ms=500.0,
                percentile=99.0,
            )
            asked = msgspec.structs.replace(asked, protocol="mqtt", qos=1, own_names=True)
            result = await run_plan(asked)
            traces = [await fetch_trace(place.http_address, "heat") for place in running.brokers]
    assert result.refused == result.lost == 0
    assert result.acknowledged == result.sent == sum(map(len, traces))
    assert all(len(trace) > 0.2 * OFFERED * SECONDS for trace in traces), "both brokers have a part"
    due = [trace.due_ns for trace in traces]
    assert excess(due, ENVELOPE) is None
    worst = worst_interval(due, ENVELOPE)
    assert worst is not None
    assert worst.released > 0.5 * worst.allowed, "the envelope is used"
    assert sum(int((trace.access_ns > 0).sum()) for trace in traces) > 0, "some waited for a token"
    arrivals = [trace.arrival_ns for trace in traces]
    assert excess(arrivals, ENVELOPE) is not None, "what was sent was above it"
