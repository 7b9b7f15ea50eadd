"""``burst = "auto"`` and the rate that would do: sized on some minutes, judged on others."""

import numpy as np
import pytest

from distributor.model.cluster import Broker
from distributor.model.leases import MICRO
from distributor.placement import minute_verdict, promise_sizing
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.planner import capacities, place_anew
from distributor.placement.promise_sizing import PromiseSizing, most_burst, three_digits
from srtm.errors import BadInput
from srtm.token_bucket.kept_minutes import minute, needed_bursts, split
from srtm.topics.spec import parse_topic_json

BROKERS = [BrokerCapacity(name=name, mcap=300.0) for name in "ab"]
GROUPS = [{"count": 40, "rate": 10.0, "group_size": 10, "id_prefix": "p"}]


def sensors(**changes: object):
    document = {"name": "sensors", "rate": 600.0, "burst": "auto", "slo": {"percentile": 99, "latency_ms": 5}}
    return parse_topic_json({**document, "publishers": GROUPS, **changes})


def kept_of(topic, burst: float, placement, minutes: int = 100) -> int:
    sizing = PromiseSizing(spec=topic, placement=placement)
    servers = sizing.layout(topic.rate).servers
    mine = np.array([share.burst / MICRO for share in sizing.shares(topic.rate, burst)])
    drawn = (split(minute(topic.publishers, seed), placement.at, len(servers)) for seed in range(minutes))
    return sum(bool((np.array(needed_bursts(one, servers, sizing.promise)) <= mine).all()) for one in drawn)


def test_the_burst_keeps_the_promise_on_minutes_that_it_was_not_sized_on_and_little_less_does_not():
    topic = sensors()
    burst, placement, reasons = place_anew(topic, BROKERS)
    assert burst == int(burst) <= most_burst(topic)
    assert len(placement.brokers) == 2
    assert not any("600 tokens" in line or "with 600" in line for line in reasons)  # the most that it might have been
    assert kept_of(topic, burst, placement) >= 92
    assert kept_of(topic, 0.7 * burst, placement) < 92


def test_a_larger_rate_or_a_longer_promise_needs_less():
    burst = place_anew(sensors(), BROKERS).burst
    assert place_anew(sensors(rate=900.0), BROKERS).burst < burst
    assert place_anew(sensors(slo={"percentile": 99, "latency_ms": 50}), BROKERS).burst < burst


def test_more_than_max_burst_s_is_refused_with_the_rate_that_does():
    with pytest.raises(
        BadInput, match=r"burst: \'auto\': needs .* max_burst_s = 0.05 allows 30; with rate = "
    ) as refused:
        place_anew(sensors(max_burst_s=0.05), BROKERS)
    rate = float(str(refused.value).split("rate = ")[1].split(" ")[0])
    assert rate > 600
    assert place_anew(sensors(max_burst_s=0.05, rate=rate), BROKERS).burst <= 0.05 * rate
    with pytest.raises(BadInput):
        place_anew(sensors(max_burst_s=0.05, rate=rate * 0.99), BROKERS)


def test_the_rate_that_does_is_the_smallest():
    topic = sensors()
    placement = place_anew(topic, BROKERS).placement
    rate = PromiseSizing(spec=topic, placement=placement).smallest_rate(lambda _rate: 60.0)
    assert rate is not None
    slower = sensors(rate=max(401.0, rate * 0.9))
    assert kept_of(sensors(rate=rate), 60.0, placement) >= 92 > kept_of(slower, 60.0, placement)


def test_there_is_a_token_for_each_broker_that_publishers_may_come_to():
    publishers = [{"count": 20, "rate": 10.0, "process": "periodic"}]
    words = {"rate": 260.0, "slo": {"percentile": 99, "latency_ms": 20}, "publishers": publishers}
    offered = [BrokerCapacity(name=name, mcap=1_300.0) for name in "abc"]
    plan = place_anew(sensors(**words), offered)
    assert (plan.placement.brokers, plan.burst) == (("a",), 3)
    assert place_anew(sensors(**words), offered[:1]).burst == 1  # as little as the promise needs
    assert place_anew(sensors(**words, max_burst_s=2 / 260), offered).burst == 2  # no more than it may be


def test_too_many_messages_to_draw_are_sized_by_formula(monkeypatch):
    topic = sensors()
    placement = place_anew(topic, BROKERS).placement
    sizing = PromiseSizing(spec=topic, placement=placement)
    drawn = sizing.smallest_burst(topic.rate)
    rate = sizing.smallest_rate(lambda _rate: 60.0)
    monkeypatch.setattr(minute_verdict, "MOST_MESSAGES", 1_000)  # a plan is by formula, too
    assert sizing.smallest_burst(topic.rate) == pytest.approx(drawn, rel=0.3)
    assert sizing.smallest_rate(lambda _rate: 60.0) == pytest.approx(rate, rel=0.3)


def test_what_is_sized_by_formula_and_judged_on_minutes_is_predicted(monkeypatch):
    topic = sensors(burst=60)
    placement = place_anew(topic, BROKERS).placement
    sizing = PromiseSizing(spec=topic, placement=placement)
    monkeypatch.setattr(promise_sizing, "FEWEST_MINUTES", 1_000)
    burst = sizing.smallest_burst(topic.rate)
    assert burst is not None
    (kept,) = minute_verdict.judged(topic.publishers, [sizing.candidate(600.0, burst)], sizing.promise, 0.95)
    assert kept.low >= 0.95


def test_nothing_above_the_largest_rate_and_burst_is_advised():
    publishers = [{"count": 10, "rate": 9e7, "group_size": 10}]
    slo = {"percentile": 99, "latency_ms": 60_000}
    topic = sensors(rate=1e9, burst=1e9, publishers=publishers, slo=slo)
    placement = place_anew(topic, [BrokerCapacity(name="a", mcap=1e9)]).placement
    sizing = PromiseSizing(spec=topic, placement=placement, services={"a": 0})
    assert sizing.smallest_rate(lambda _rate: 1e9) is None
    assert sizing.smallest_burst(1e9, above=1e9) is None
    assert sizing.smallest_burst(1e9) is not None


def test_many_publishers_of_few_messages_are_too_many_to_draw():
    few, many = (sensors(publishers=[{"count": count, "rate": 100 / count}]) for count in (100, 1_000_000))
    assert minute_verdict.most_minutes(few.publishers) == minute_verdict.MOST_MINUTES
    assert minute_verdict.most_minutes(many.publishers) < promise_sizing.FEWEST_MINUTES


@pytest.mark.parametrize("minutes", [20, 79, 80, 81, 159, 160])
def test_a_rate_is_advised_however_many_minutes_may_be_drawn(monkeypatch, minutes):
    topic = sensors(burst=60)
    monkeypatch.setattr(minute_verdict, "MOST_MESSAGES", round(minutes * minute_verdict.minute_cost(topic.publishers)))
    placement = place_anew(topic, BROKERS).placement
    sizing = PromiseSizing(spec=topic, placement=placement)
    rate = sizing.smallest_rate(lambda _rate: 60.0)
    assert rate is not None
    candidate = sizing.candidate(rate, 60.0)
    (kept,) = minute_verdict.judged(topic.publishers, [candidate], sizing.promise, 0.95)
    assert kept.low >= 0.95


def test_where_processing_breaks_the_promise_the_burst_is_that_of_the_access_delay():
    topic = sensors(slo={"percentile": 99, "latency_ms": 0.01})
    placement = place_anew(sensors(), BROKERS).placement
    assert PromiseSizing(spec=topic, placement=placement).smallest_burst(topic.rate) is None
    assert 1 < place_anew(topic, BROKERS).burst <= most_burst(topic)


def test_without_brokers_one_token_is_enough_and_without_publishers_one_a_broker():
    assert place_anew(sensors(), []).burst == 1
    assert place_anew(sensors(publishers=[]), BROKERS).burst == len(BROKERS)


def test_rates_have_three_digits_and_the_next_one_is_larger():
    assert [three_digits(index) for index in (-1, 0, 899, 900, 901, -1_800)] == [99.9, 100, 999, 1_000, 1_010, 1]


@pytest.mark.parametrize(
    ("rate", "above"), [(1_234.5, 1_240), (1_230.0, 1_240), (0.012345, 0.0124), (99.96, 100), (999.0, 1_000)]
)
def test_a_rate_that_is_advised_is_above_that_of_the_topic(rate, above):
    publishers = [{"count": 1, "rate": rate / 2, "process": "periodic"}]
    topic = sensors(rate=rate, burst=1_000, publishers=publishers, slo={"percentile": 99, "latency_ms": 60_000})
    placement = place_anew(topic, [BrokerCapacity(name="a", mcap=2_000.0)]).placement
    assert PromiseSizing(spec=topic, placement=placement).smallest_rate(lambda _rate: 1_000.0) == above


def test_a_broker_of_unknown_capacity_has_an_assumed_one():
    topic = sensors()
    known = {"incarnation": "1", "srtm_version": "1", "tcp_address": "", "http_address": "", "accepting": True}
    brokers = [Broker(name=name, mcap=mcap, **known) for name, mcap in (("unknown", 0.0), ("stated", 50_000.0))]
    offered = capacities(brokers, ["unknown", "stated"], {}, topic, {})
    assert [one.rcap for one in offered] == [20_000.0, 50_000.0]
