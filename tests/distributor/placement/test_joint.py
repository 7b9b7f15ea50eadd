"""Clients that publish to several topics have one place, where there is room; others are placed as ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.model.cluster import Placement, Topic
from distributor.model.leases import NOTHING, Leases
from distributor.placement import joint, planner
from distributor.placement.allocation import BrokerCapacity
from srtm.topics.spec import TopicSpec, parse_topic_json

BROKERS = ("a", "b", "c")


def spec(name: str, rates: dict[str, float], *, mqtt: bool = True, burst: float = 30.0) -> TopicSpec:
    return parse_topic_json(
        {
            "name": name,
            "rate": 1.1 * sum(rates.values()),
            "burst": burst,
            "slo": {"percentile": 99, "latency_ms": 5},
            "publishers": [{"ids": list(rates), "rates": list(rates.values())}],
            **({"mqtt": {"filters": [f"{name}/#"]}} if mqtt else {}),
        }
    )


def placed(topic: TopicSpec, at: dict[str, str]) -> Topic:
    where = [BROKERS.index(at[one]) if one in at else -1 for one in topic.publishers.ids]
    placement = Placement(publishers=topic.publishers, brokers=BROKERS, at=np.array(where, dtype=np.int64))
    return Topic(spec=topic, version=1, placement=placement, assignment_version=1, leases=Leases(NOTHING))


def offered(**rooms: float) -> list[BrokerCapacity]:
    return [BrokerCapacity(name=name, mcap=1000.0, allocated=1000.0 - room) for name, room in rooms.items()]


def where(plan: planner.TopicPlan) -> dict[str, str | None]:
    return {one: plan.placement.broker_of(one) for one in plan.placement.publishers.ids}


def test_a_home_is_where_most_of_a_clients_rate_is():
    heat = spec("heat", {"car": 1.0, "van": 1.0, "bus": 1.0})
    topics = [
        placed(spec("roads", {"car": 5.0, "van": 5.0}), {"car": "a", "van": "a"}),
        placed(spec("fuel", {"car": 3.0, "van": 9.0}), {"car": "b", "van": "b"}),
        placed(spec("wind", {"car": 3.0}), {"car": "b"}),
    ]
    assert joint.homes(heat, topics, BROKERS) == {"car": "b", "van": "b"}
    assert joint.homes(heat, topics, {"a", "c"}) == {"car": "a", "van": "a"}  # b drains, or is dead
    assert joint.homes(heat, topics, {"c"}) == {}


def test_of_equal_rates_the_topics_own_broker_counts():
    heat = spec("heat", {"car": 5.0})
    others = [placed(spec("roads", {"car": 5.0}), {"car": "a"})]
    assert joint.homes(heat, [*others, placed(heat, {"car": "b"})], BROKERS) == {"car": "b"}
    slower = placed(spec("heat", {"car": 4.0}), {"car": "b"})
    assert joint.homes(heat, [*others, slower], BROKERS) == {"car": "a"}


def test_nobody_has_a_home_by_his_own_topic_alone_or_without_a_place():
    heat = spec("heat", {"car": 5.0})
    assert joint.homes(heat, [placed(heat, {"car": "a"})], BROKERS) == {}
    assert joint.homes(heat, [placed(spec("roads", {"car": 5.0}), {})], BROKERS) == {}


@pytest.mark.parametrize("which", ["heat", "roads"])
def test_topics_without_mqtt_filters_do_not_count(which):
    heat, roads = (spec(name, {"car": 5.0}, mqtt=name != which) for name in ("heat", "roads"))
    assert joint.homes(heat, [placed(roads, {"car": "a"})], BROKERS) == {}


def test_a_client_is_placed_at_its_home_although_another_broker_has_more_room():
    heat, rooms = spec("heat", {"car": 100.0}), offered(a=100.0, b=900.0)
    assert where(planner.place_anew(heat, rooms)) == {"car": "b"}
    plan = planner.place_anew(heat, rooms, {"car": "a"})
    assert where(plan) == {"car": "a"}
    assert "clients of several topics: 1 placed at the broker of their other topics" in plan.reasons


def test_a_client_whose_home_has_no_room_is_placed_elsewhere_and_warned_of():
    heat = spec("heat", {"car": 100.0})
    for room in (99.0, 0.0):
        plan = planner.place_anew(heat, offered(a=room, b=900.0), {"car": "a"})
        assert where(plan) == {"car": "b"}
        assert any(line.startswith("warning: 1 client ") and "car (a)" in line for line in plan.reasons)


def test_a_home_outside_the_brokers_offered_is_no_place():
    plan = planner.place_anew(spec("heat", {"car": 100.0}), offered(b=900.0), {"car": "a"})
    assert where(plan) == {"car": "b"}


def test_homes_come_before_equal_quotas_and_figures_are_told_of_the_placement():
    fleet = {f"car{at}": 10.0 for at in range(10)}
    rooms = offered(a=90.0, b=90.0)
    homes = dict.fromkeys(list(fleet)[:7], "a")
    plan = planner.place_anew(spec("heat", fleet), rooms, homes)
    assert [where(plan)[one] for one in homes] == ["a"] * 7
    assert plan.placement.assigned["a"] <= 90.0
    for name, ids in plan.placement.ids_of.items():
        [line] = [line for line in plan.reasons if line.startswith(f"{name}: ")]
        assert f"{len(ids)} publishers" in line


def test_homes_open_no_more_brokers_than_the_burst_has_tokens_for():
    fleet = {"car": 10.0, "van": 10.0}
    plan = planner.place_anew(spec("heat", fleet, burst=1), offered(a=90.0, b=90.0), {"car": "a", "van": "b"})
    assert len(plan.placement.brokers) == 1
    assert plan.placement.state == "placed"


def test_a_client_goes_to_its_home_once_that_has_room():
    heat = spec("heat", {"car": 10.0, "van": 10.0})
    plan = planner.place_again(heat, offered(a=500.0, b=500.0), ["b", "b"], {"car": "a"})
    assert where(plan) == {"car": "a", "van": "b"}


@given(
    rates=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=12),
    rooms=st.lists(st.integers(0, 30), min_size=3, max_size=3),
    choices=st.data(),
)
def test_homes_exceed_no_room_and_leave_nobody_without_a_place(rates, rooms, choices):
    heat = spec("heat", {f"p{at}": rate for at, rate in enumerate(rates)})
    brokers = offered(**dict(zip(BROKERS, map(float, rooms), strict=True)))
    plan = planner.place_anew(heat, brokers)
    some = choices.draw(st.dictionaries(st.sampled_from(heat.publishers.ids), st.sampled_from(BROKERS)))
    moved = joint.at_homes(plan.placement, some, brokers, plan.burst)
    assert moved.missing == plan.placement.missing
    assert all(rate <= rooms[BROKERS.index(name)] + 1e-5 for name, rate in moved.assigned.items())
    homed = [one for one, home in some.items() if plan.placement.broker_of(one) == home]
    assert all(moved.broker_of(one) == some[one] for one in homed)
    others = set(heat.publishers.ids) - some.keys()
    assert all(moved.broker_of(one) == plan.placement.broker_of(one) for one in others)


def test_reasons_tell_of_many_by_three_names():
    heat = spec("heat", {f"p{at}": 1.0 for at in range(5)})
    placement = placed(heat, dict.fromkeys(heat.publishers.ids, "b")).placement
    [line] = joint.reasons(placement, dict.fromkeys(heat.publishers.ids, "a"))
    assert "5 clients" in line
    assert "p0 (a), p1 (a), p2 (a), 2 more" in line
    assert joint.reasons(replace(placement, at=placement.at * 0 - 1), {"p0": "a"}) == []
