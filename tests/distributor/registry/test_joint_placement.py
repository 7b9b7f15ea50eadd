"""Clients that publish to several topics of MQTT: at one broker, through submissions, drains and searches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from distributor.fitting.transitions import Rules
from distributor.registry.registry import Registry
from srtm.topics.spec import TopicSpec, parse_topic_json
from tests.support.distributor_in_process import Distributor
from tests.support.live_layouts import ON_BREACH, live

pytestmark = pytest.mark.usefixtures("no_threads")

LINE = "clients of several topics: 1 placed at the broker of their other topics"


def spec(name: str, ids: Sequence[str], rate_each: float = 100.0) -> TopicSpec:
    return parse_topic_json(
        {
            "name": name,
            "rate": 2 * rate_each * len(ids),
            "burst": 30,
            "mode": "static",
            "slo": {"percentile": 99, "latency_ms": 5},
            "publishers": [{"ids": list(ids), "rates": [rate_each] * len(ids)}],
            "mqtt": {"filters": [f"{name}/#"]},
        }
    )


def place(registry: Registry, topic: str, one: str = "car") -> str | None:
    return registry.topic(topic).placement.broker_of(one)


async def one_each(distributor: Distributor) -> tuple[str, str]:
    """Topic roads has car at one broker, bus at the other; each has 100 msg/s left. Returns both brokers."""
    await distributor.brokers("a", "b", mcap=400.0)
    await distributor.submit(spec("roads", ["car", "bus"], 300.0))
    at = place(distributor.registry, "roads", "car"), place(distributor.registry, "roads", "bus")
    assert set(at) == {"a", "b"}
    return str(at[0]), str(at[1])


async def test_a_second_topic_of_a_client_goes_where_the_first_is_and_its_plan_says_so(
    distributor: Distributor,
) -> None:
    for one, at in zip(("car", "bus"), await one_each(distributor), strict=True):
        plan = await distributor.registry.dry_run(spec("heat", [one], 50.0))
        assert plan.placement.broker_of(one) == at
        assert LINE in plan.reasons
        await distributor.submit(spec(f"heat-{one}", [one], 50.0))
        assert place(distributor.registry, f"heat-{one}", one) == at
        assert LINE in distributor.registry.decisions[f"heat-{one}"][-1].lines


async def test_clients_that_join_a_topic_go_where_their_other_topic_is(distributor: Distributor) -> None:
    registry = distributor.registry
    places = await one_each(distributor)
    await distributor.submit(spec("wind", ["kite"], 10.0))
    await registry.change_publishers("wind", lambda old: spec(old.name, ["kite", "car", "bus"], 10.0))
    assert (place(registry, "wind", "car"), place(registry, "wind", "bus")) == places


async def test_without_room_a_client_has_two_places_and_a_warning_until_it_stays_at_one(
    distributor: Distributor,
) -> None:
    registry = distributor.registry
    at, _ = await one_each(distributor)
    await distributor.brokers("c", mcap=500.0)
    await distributor.submit(spec("heat", ["car"], 101.0))
    assert place(registry, "heat") == "c"
    assert any(line.startswith("warning: 1 client ") for line in registry.topic("heat").reasons)
    registry.pins.pin("heat", "car", at)  # as a broker says of a client that was told twice
    await registry.leave_pinned("heat")
    assert place(registry, "heat") == at
    assert not any("several topics" in line for line in registry.topic("heat").reasons)


async def test_the_broker_where_a_client_stays_comes_before_its_home(distributor: Distributor) -> None:
    registry = distributor.registry
    _, other = await one_each(distributor)
    await distributor.submit(spec("heat", ["car"], 50.0))
    registry.pins.pin("heat", "car", other)
    plan = await registry.dry_run(spec("heat", ["car"], 51.0))
    assert plan.placement.broker_of("car") == other
    assert not any("several topics" in line for line in plan.reasons)


async def test_off_a_broker_that_drains_a_client_goes_to_one_place_with_all_its_topics(
    distributor: Distributor,
) -> None:
    registry = distributor.registry
    await distributor.brokers("a", mcap=1000.0)
    for name in ("roads", "heat", "fuel"):
        await distributor.submit(spec(name, ["car"]))
    assert {place(registry, name) for name in ("roads", "heat", "fuel")} == {"a"}
    await distributor.brokers("b", "c", mcap=400.0)
    await registry.drain("a", force=False)
    places = {place(registry, name) for name in ("roads", "heat", "fuel")}
    assert len(places) == 1
    assert places < {"b", "c"}


async def test_a_search_for_a_layout_leaves_clients_of_several_topics_where_they_are(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    async with live(distributor, default=ON_BREACH, rules=Rules(grace_s=5)) as here:
        await here.start_brokers("ab")
        await here.submit("bikes", options=None, count=20, rate=1.0, mqtt={"filters": ["bike/#"]})
        await here.submit("cars", options=None, count=80, mqtt={"filters": ["car/#"]})  # too many for one broker
        await trio.sleep(60)
        cars, bikes = (distributor.registry.topic(name).placement for name in ("cars", "bikes"))
    assert here.placed_on() == {"a", "b"}
    assert [cars.broker_of(one) for one in bikes.publishers.ids] == [
        bikes.broker_of(one) for one in bikes.publishers.ids
    ]
