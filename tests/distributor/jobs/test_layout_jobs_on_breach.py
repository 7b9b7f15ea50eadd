"""The layout loop as it runs by default: it searches where a promise is broken, and publishers that stay are pinned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from distributor.fitting.transitions import Rules
from distributor.views import metrics
from distributor.views import topic_view as views
from srtm.control import UnassignedPublisher
from tests.support.live_layouts import ON_BREACH, live

pytestmark = pytest.mark.usefixtures("no_threads")
QUICK = Rules(grace_s=5)


async def test_a_promise_that_is_kept_is_left_alone(distributor, autojump_clock):
    async with live(distributor, default=ON_BREACH) as here:
        await here.start_brokers("ab")
        await here.submit(count=40, options=None)
        before = distributor.registry.topic("cars").placement
        await trio.sleep(120)
        assert distributor.registry.topic("cars").placement is before
        assert here.view()["state"] == "off"  # nothing was ever searched for, and nothing is stored
        assert here.brokers["a"].measured == here.brokers["b"].measured == []


async def test_a_promise_that_is_broken_for_the_grace_gets_another_layout_and_that_is_said(distributor, autojump_clock):
    async with live(distributor, default=ON_BREACH, rules=QUICK) as here:
        await here.start_brokers("ab")
        await here.submit(count=80, options=None)  # 80 at once take 1.6 ms on one broker, 48 of them 0.96
        assert len(here.placed_on()) == 1
        await trio.sleep(60)
        assert len(here.placed_on()) == 2
        view = here.view()
        text = b"".join(metrics.exposition(distributor.registry, here.syncing))
        shown = views.topic_view(distributor.registry.topic("cars"), distributor.registry, here.syncing)
    assert (view["state"], view["outcome"], view["method"]) == ("fits", "fits", "on-breach")
    assert b'srtm_layout_searches_total{outcome="fits"} 1.0' in text
    assert shown.layout == "resting (last: fits)"
    assert any("fits on 2 brokers" in entry.lines[0] for entry in distributor.registry.decisions["cars"])


async def test_where_nobody_may_move_it_is_said_what_would_be_done(distributor, autojump_clock):
    async with live(distributor, default=ON_BREACH, rules=replace(QUICK, may_move=False)) as here:
        await here.start_brokers("ab")
        await here.submit(count=80, options=None)
        await trio.sleep(60)
        assert len(here.placed_on()) == 1
        assert here.view()["outcome"] == "nobody may be moved"
        assert "publishers would move" in here.view()["explanation"][0]


@pytest.mark.slow
async def test_a_promise_that_no_layout_keeps_is_left_and_looked_at_again_after_the_cool_down(
    distributor, autojump_clock
):
    async with live(distributor, default=ON_BREACH, rules=QUICK) as here:
        await here.start_broker("a")
        await here.submit(count=80, options=None)
        await trio.sleep(60)
        assert here.view()["outcome"] == "no layout is better"
        measured = len(here.brokers["a"].measured)
        await trio.sleep(240)
        assert len(here.brokers["a"].measured) == measured
        await here.start_broker("b")
        await trio.sleep(90)
        assert here.view()["outcome"] == "fits"
        assert here.placed_on() == {"a", "b"}


async def stay_at_b(here, count=10):
    """``count`` publishers of cars, which is placed on a, do not move from b."""
    await here.start_broker("a")
    await here.submit(count=40, options=None)
    await here.start_broker("b")
    stayed = [UnassignedPublisher(topic="cars", publisher_id=f"p{at}") for at in range(1, count + 1)]
    here.brokers["b"].stayed = stayed
    await trio.sleep(3)
    return [one.publisher_id for one in stayed]


async def test_publishers_that_stay_are_placed_where_they_are_and_shown_as_pinned(distributor, autojump_clock):
    async with live(distributor, default=ON_BREACH) as here:
        ids = await stay_at_b(here)
        topic = distributor.registry.topic("cars")
        assert {topic.placement.broker_of(one) for one in ids} == {"b"}
        assert here.brokers["b"].share("cars")[0] >= 10 * 200.0
        columns = views.publishers_view(topic, distributor.registry, None)
        assert [one for one, pinned in zip(columns.ids, columns.pinned, strict=True) if pinned] == ids
        reasons = [entry.lines[0] for entry in distributor.registry.decisions["cars"]]
        assert "10 publishers did not move when told: they stay at b" in reasons


async def test_placement_takes_pinned_publishers_as_they_are(distributor, autojump_clock):
    async with live(distributor, default=ON_BREACH) as here:
        ids = await stay_at_b(here)
        await here.submit(count=50, options=None)
        topic = distributor.registry.topic("cars")
        assert {topic.placement.broker_of(one) for one in ids} == {"b"}


async def test_a_pinned_publisher_that_connects_elsewhere_is_asked_again(distributor, autojump_clock):
    async with live(distributor, default=ON_BREACH) as here:
        await stay_at_b(here, count=1)
        assert distributor.registry.pins.of("cars") == {"p1": "b"}
        here.brokers["a"].strangers = [UnassignedPublisher(topic="cars", publisher_id="p1")]
        await trio.sleep(2)
        assert distributor.registry.pins.of("cars") == {}
