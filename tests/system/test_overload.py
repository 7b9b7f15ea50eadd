"""A broker that is offered twice a topic's rate: what it lets go, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from bench.harness.cluster_runs.broker_api import put_bucket
from bench.harness.cluster_runs.trace import fetch_trace
from bench.harness.load.run import run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.systems.systems import bare_broker
from srtm.token_bucket.bucket import conforms_actual, conforms_due
from srtm.token_bucket.replay import due_instants
from srtm.units import to_micro

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

TOPIC, RATE, BURST = "overload", 5_000.0, 100.0
PUBLISHERS = 200


def test_an_overloaded_topic_goes_at_the_references_instants_and_never_over_its_envelope(tmp_path: Path) -> None:
    async def overloaded() -> None:
        async with bare_broker(tmp_path / "b") as broker:
            await put_bucket(broker.http_address, TOPIC, RATE, BURST)
            plan = Plan(
                topic=TOPIC,
                targets=[broker.tcp_address],
                publishers=modelled([0] * PUBLISHERS, 2 * RATE / PUBLISHERS),
                subscribers=[Subscriber(target=0)],
                duration_s=2.0,
                warmup_s=0.0,
                drain_s=4.0,  # what waits at the end takes as long again
                seed=1,
            )
            result = await run_plan(plan)
            trace = await fetch_trace(broker.http_address, TOPIC)
        rate, burst = to_micro(RATE, "rate"), to_micro(BURST, "burst")
        assert (result.lost, result.received) == (0, len(trace))
        assert trace.due_ns.tolist() == due_instants(trace.arrival_ns, rate, burst).tolist()
        assert trace.access_ns.max() > 10**9
        assert conforms_due(trace.due_ns.tolist(), rate, burst) is None
        assert conforms_actual(trace.released_ns.tolist(), rate, burst, int(trace.lateness_ns.max())) is None

    trio.run(overloaded)
