"""What a placement is predicted to do, against what is known otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distributor.model.leases import MICRO, Amount
from distributor.placement import planner
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.share_targets import ShareDemand, target_shares
from distributor.prediction import forecast as module
from distributor.prediction.forecast import Forecast, Service, Simulation
from srtm.token_bucket.poisson import mean_delay_s
from srtm.topics.spec import TopicSpec, parse_topic_json


def topic(count: int, rate: float, burst: float, slack: float = 1.1, **block: object) -> TopicSpec:
    document = {"name": "t", "rate": count * rate * slack, "burst": burst, "slo": {"percentile": 99, "latency_ms": 5}}
    return parse_topic_json({**document, "publishers": [{"count": count, "rate": rate, **block}]})


def foreseen(
    spec: TopicSpec, k: int, services: dict[str, Service] | None = None, mcap: float | None = None
) -> Forecast:
    """Spread over ``k`` brokers."""
    each = spec.publishers.load / k * 1.05 if mcap is None else mcap
    offered = [BrokerCapacity(name=f"b{at}", mcap=each) for at in range(k)]
    burst, placement, _ = planner.place_anew(spec, offered)
    assert len(placement.brokers) == k
    envelope = Amount(round(spec.rate * MICRO), round(burst * MICRO))
    shares = target_shares(ShareDemand(spec=spec, envelope=envelope, placement=placement))
    traffic = Simulation(spec.publishers, spec.slo.percentile, envelope, 1)
    return traffic.forecast(placement, shares, services or {})


def test_one_broker_costs_no_penalty_and_waits_about_as_equation_1_says():
    found = foreseen(topic(100, 20, burst=4, slack=1.5), 1)
    assert (found.method, found.penalty.sum_ms, found.penalty.p99_ms) == ("simulation", 0, 0)
    assert found.penalty.one_mean_ms == pytest.approx(1e3 * mean_delay_s(2000, 3000, 4), rel=0.2)
    assert found.messages == pytest.approx(2000 * found.seconds, rel=0.01)


def test_a_split_costs_a_sum_that_is_never_negative_and_grows_with_k():
    spec = topic(120, 20, burst=24)
    sums = [foreseen(spec, k).penalty.sum_ms for k in (1, 2, 4)]
    assert 0 == sums[0] < sums[1] < sums[2]


def test_processing_is_that_of_a_server_with_the_service_time_given():
    spec = topic(10, 100, burst=1000, process="periodic", batch=10, group_size=10)  # all at once, ten times a second
    found = foreseen(spec, 1, {"b0": Service(20_000, "laboratory")})
    assert found.brokers["b0"].processing_ms == pytest.approx(0.02 * 99, abs=0.021)  # the 99th of 100 in a row
    assert found.brokers["b0"].access_ms == 0
    assert found.worst == found.brokers["b0"]


@pytest.mark.parametrize(("batch", "group_size"), [(1, 1), (10, 1), (1, 10)])
def test_the_formula_agrees_with_the_simulation_within_a_factor_of_two(monkeypatch, batch, group_size):
    spec = topic(200, 20, burst=30 * batch * min(group_size, 4), batch=batch, group_size=group_size)
    simulated = foreseen(spec, 3)
    monkeypatch.setattr(module, "MOST_MESSAGES", 1000)
    formula = foreseen(spec, 3)
    assert (simulated.method, formula.method) == ("simulation", "formula")
    assert simulated.worst.access_ms > 0.5
    for name in ("access_ms", "processing_ms", "total_ms"):
        ratio = getattr(formula.worst, name) / getattr(simulated.worst, name)
        assert 0.5 < ratio < 2, (name, formula.worst, simulated.worst)
    assert 0.5 < formula.penalty.mean_ms / simulated.penalty.mean_ms < 2
    assert 0.5 < formula.penalty.p99_ms / simulated.penalty.p99_ms < 2


def test_a_broker_that_cannot_keep_up_has_no_percentile(monkeypatch):
    monkeypatch.setattr(module, "MOST_MESSAGES", 1000)
    found = foreseen(topic(200, 20, burst=30), 1, {"b0": Service(1_000_000, "laboratory")})
    assert math.isinf(found.worst.processing_ms)
    assert math.isinf(found.worst.total_ms)


def test_a_share_without_tokens_never_lets_its_messages_go():
    spec = topic(10, 10, burst=5)
    _, placement, _ = planner.place_anew(spec, [BrokerCapacity(name=name, mcap=60.0) for name in "ab"])
    whole = Amount(110 * MICRO, 5 * MICRO)
    found = Simulation(spec.publishers, 99, whole, 1).forecast(placement, {"a": whole, "b": Amount(0, 0)}, {})
    assert found.method == "formula"
    assert math.isinf(found.brokers["b"].access_ms)
    assert math.isfinite(found.brokers["a"].access_ms)


def test_waits_beyond_what_64_bits_can_tell_are_answered_for_by_formula():
    spec = topic(1, 1000, burst=1, batch=100_000, process="periodic")
    _, placement, _ = planner.place_anew(spec, [BrokerCapacity(name="a", mcap=6000.0)])
    least = Amount(1, MICRO)
    found = Simulation(spec.publishers, 99, least, 1).forecast(placement, {"a": least}, {})
    assert found.method == "formula"
    assert math.isinf(found.worst.total_ms)


def test_nobody_placed_is_nothing_predicted():
    spec = topic(10, 10, burst=5)
    _, placement, _ = planner.place_anew(spec, [])
    found = Simulation(spec.publishers, 99, Amount(110 * MICRO, 5 * MICRO), 1).forecast(placement, {}, {})
    assert (found.messages, dict(found.brokers), found.worst.total_ms) == (0, {}, 0.0)


@pytest.mark.slow
def test_a_million_publishers_are_answered_for_by_formula():
    spec = topic(1_000_000, 10, burst=5000, group_size=25)
    found = foreseen(spec, 400, mcap=25_000)
    assert found.method == "formula"
    assert len(found.brokers) == 400
    assert np.isfinite([one.total_ms for one in found.brokers.values()]).all()
