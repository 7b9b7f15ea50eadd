"""What is advised is judged by the shares that a submission would give: others publish to the topic, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributor.jobs.explain import planned, submitted
from srtm.control import TopicReport
from srtm.topics.spec import TopicSpec
from tests.support.distributor_in_process import Distributor, settle, spec

TOPIC = replace(spec(count=40, rate=10.0, split="fitted"), rate=600.0, burst=20.0)


async def _with_strangers(distributor: Distributor, topic: TopicSpec) -> None:
    """On broker b: so it has a part of (r, b)."""
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(topic)
    await settle(a, b)
    b.reports = [TopicReport(topic=topic.name, share_version=0, backlog=3)]
    await settle(b, a, b)
    assert distributor.registry.topic(topic.name).leases.target.keys() == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("field", ["burst", "rate"])
async def test_what_is_advised_for_a_topic_with_strangers_is_predicted_once_it_is_submitted(distributor, field):
    await _with_strangers(distributor, TOPIC)
    registry, syncing = distributor.registry, distributor.syncing
    plan = await planned(TOPIC, registry, syncing)
    assert not plan["promise"]["predicted"]
    topic = await registry.submit(replace(TOPIC, **{field: plan["promise"]["enough"][field]}))
    assert (await submitted(topic, registry, syncing, 95.0))["promise"]["predicted"]


async def test_a_plan_shows_the_shares_that_a_submission_would_give(distributor):
    await _with_strangers(distributor, TOPIC)
    registry, syncing = distributor.registry, distributor.syncing
    larger = replace(TOPIC, burst=500.0)
    plan = await planned(larger, registry, syncing)
    topic = await registry.submit(larger)
    (of_a,) = plan["brokers"]
    share = topic.leases.target["a"]
    assert (of_a["rate"], of_a["burst"]) == (share.rate / 1e6, share.burst / 1e6)
    assert of_a["burst"] < 500
