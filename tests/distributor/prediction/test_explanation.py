"""What a plan and a submission answer with."""

from __future__ import annotations

import pytest

from distributor.placement import planner
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.explanation import Outcome, explain
from distributor.prediction.forecast import Service
from tests.support.distributor_in_process import spec


def explained(*mcaps: float, services: dict[str, Service] | None = None, **changes: object) -> dict:
    topic = spec(**changes)
    offered = [BrokerCapacity(name=f"b{at}", mcap=mcap) for at, mcap in enumerate(mcaps)]
    burst, placement, reasons = planner.place_anew(topic, offered)
    return explain(
        Outcome(spec=topic, burst=burst, placement=placement, reasons=reasons, offered=offered, services=services or {})
    )


@pytest.fixture(scope="module")
def plan() -> dict:
    """On three brokers, of which two are enough. An answer takes a second of work."""
    return explained(600.0, 600.0, 600.0)


def test_it_says_who_goes_where_with_which_part_of_the_bucket(plan):
    assert (plan["k"], plan["state"], plan["publishers"], plan["publishers_rate"]) == (2, "placed", 100, 1000.0)
    assert [one["publishers"] for one in plan["brokers"]] == [50, 50]
    assert [one["groups"] for one in plan["brokers"]] == [20, 20]  # every group of five is on both
    assert sum(one["rate_part"] for one in plan["brokers"]) == pytest.approx(1)
    assert sum(one["burst"] for one in plan["brokers"]) == pytest.approx(30)


def test_what_is_left_afterwards_is_what_the_brokers_had_less_what_they_got(plan):
    assert [one["free_afterwards"] for one in plan["brokers"]] == [100.0, 100.0]
    assert plan["admitted_afterwards"]["largest_topic"] == pytest.approx(800.0)
    assert explained(0.0, 600.0)["admitted_afterwards"]["largest_topic"] is None  # of one no limit is known


def test_the_balanced_spread_is_answered_for_on_the_same_traffic(plan):
    even = plan["balanced"]
    assert even["k"] == 3
    assert even["predicted"]["messages"] == plan["predicted"]["messages"]
    assert even["penalty"]["one_mean_ms"] == plan["penalty"]["one_mean_ms"]
    assert even["penalty"]["sum_ms"] > plan["penalty"]["sum_ms"] > 0
    assert even["predicted"]["access_ms"] > plan["predicted"]["access_ms"]
    assert explained(600.0, 600.0, placement="lb")["balanced"] is None


def test_service_times_are_those_known_and_said_to_be_assumed_elsewhere():
    plan = explained(600.0, 600.0, services={"b0": Service(1_000_000, "laboratory")})
    slow, plain = plan["brokers"]
    assert (slow["service_us"], slow["service_known"]) == (1000.0, "laboratory")
    assert plain["service_known"] == "assumed"
    assert slow["processing_ms"] > 10 * plain["processing_ms"] > 0


def test_a_promise_that_no_placement_here_keeps_is_said_to_be_broken():
    assert explained(600.0, 600.0, slo={"percentile": 99, "latency_ms": 0.001})["promise"]["predicted"] is False
    assert explained(2000.0, burst=500, slo={"percentile": 99, "latency_ms": 50})["promise"]["predicted"] is True


def test_without_a_broker_it_waits_and_predicts_nothing():
    plan = explained()
    assert (plan["k"], plan["state"], plan["brokers"], plan["predicted"]["messages"]) == (0, "waiting", [], 0)


def test_the_same_question_has_the_same_answer(plan):
    assert explained(600.0, 600.0, 600.0) == plan
