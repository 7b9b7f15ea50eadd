"""In how many minutes a promise is kept, and when the drawing ends."""

import random
import re
from dataclasses import replace

import pytest

from distributor.placement import minute_verdict
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.planner import place_anew
from distributor.placement.promise_sizing import PromiseSizing
from distributor.prediction.promise import checked_confidence, promise_json
from srtm.errors import BadInput
from srtm.topics.spec import parse_topic_json


def predicted(
    confidence: float = 95.0, mcap: float = 600.0, brokers: str = "a", services: int | None = None, **changes: object
) -> dict:
    document = {"name": "sensors", "rate": 600.0, "burst": 30, "slo": {"percentile": 99, "latency_ms": 5}}
    publishers = [{"count": 40, "rate": 10, "group_size": 10}]
    topic = parse_topic_json({**document, "publishers": publishers, **changes})
    known = {} if services is None else dict.fromkeys(brokers, services)
    offered = [BrokerCapacity(name=name, mcap=mcap) for name in brokers]
    burst, placement, _ = place_anew(topic, offered, services=known)
    sizing = PromiseSizing(spec=topic, placement=placement, services=known)
    shares = dict(zip(placement.brokers, sizing.shares(topic.rate, burst), strict=True))
    roomy = replace(sizing, placement=place_anew(replace(topic, burst=float(len(brokers))), offered).placement)
    return promise_json(sizing, burst, shares, None, confidence, roomy)


def test_a_promise_that_is_always_kept_needs_the_fewest_minutes_that_tell():
    found = predicted(burst=500)
    assert (found["predicted"], found["kept"]["kept"], found["kept"]["minutes"]) == (True, 80, 80)
    assert "enough" not in found


def test_a_promise_that_is_never_kept_is_told_by_the_first_minutes_with_what_would_do():
    found = predicted(burst=10)
    assert (found["predicted"], found["kept"]["kept"], found["kept"]["minutes"]) == (False, 0, 20)
    enough = found["enough"]
    assert predicted(burst=enough["burst"])["predicted"]
    assert predicted(burst=10, rate=enough["rate"])["predicted"]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_advised_is_accepted_and_predicted(seed):
    choose = random.Random(seed)
    rate, size, percentile = choose.uniform(2.0, 4.0), choose.choice([1, 4, 10]), choose.choice([95, 99, 99.9])
    load = 40 * rate
    file = {
        "rate": round(load * choose.uniform(1.1, 1.5), 3),
        "burst": "auto" if seed % 2 else choose.choice([4, 8, 12]),
        "max_burst_s": 0.04,  # three tokens at least, as there are brokers
        "slo": {"percentile": percentile, "latency_ms": choose.choice([5, 20])},
        "publishers": [{"count": 40, "rate": rate, "group_size": size}],
    }
    brokers = {"brokers": "abc", "mcap": load / choose.randint(1, 3) + rate}
    try:
        found = predicted(**file, **brokers)
    except BadInput as refused:
        ((advised,),) = [re.findall(r"with rate = (\S+) it does", str(refused))]
        assert predicted(**{**file, "rate": float(advised)}, **brokers)["predicted"]
        return
    assert not found["predicted"]
    enough = found["enough"]
    assert enough["rate"] > file["rate"]
    assert enough["burst"] > file["burst"]
    assert predicted(**{**file, "rate": enough["rate"]}, **brokers)["predicted"]
    assert predicted(**{**file, "burst": enough["burst"]}, **brokers)["predicted"]


@pytest.mark.parametrize(
    ("placement", "brokers", "mcap", "burst"),
    [("lb", "abcde", 31.0, 2), ("lb", "ab", 31.0, 1), ("srtm", "abcd", 21.0, 2)],  # so few tokens are not for all
)
def test_a_burst_that_brings_publishers_to_more_brokers_is_the_one_for_those(placement, brokers, mcap, burst):
    publishers = [{"count": 20, "rate": 3.0, "group_size": 4}]
    slo = {"percentile": 99, "latency_ms": 20}
    file = {"rate": 90.0, "burst": burst, "placement": placement, "publishers": publishers, "slo": slo}
    enough = predicted(**file, brokers=brokers, mcap=mcap)["enough"]
    assert predicted(**{**file, "burst": enough["burst"]}, brokers=brokers, mcap=mcap)["predicted"]


def test_a_rate_for_an_automatic_burst_is_the_one_for_the_brokers_that_it_brings_publishers_to():
    publishers = [{"count": 8, "rate": 1.35, "group_size": 8}]
    slo = {"percentile": 99, "latency_ms": 20}
    file = {"burst": "auto", "max_burst_s": 0.04, "placement": "lb", "publishers": publishers, "slo": slo}
    brokers = {"brokers": "abcdef", "mcap": 3.6}
    with pytest.raises(BadInput, match="with rate = ") as refused:
        predicted(**file, rate=21.0, **brokers)
    ((advised,),) = [re.findall(r"with rate = (\S+) it does", str(refused.value))]
    assert predicted(**file, rate=float(advised), **brokers)["predicted"]


def test_where_brokers_lack_room_neither_rate_nor_burst_is_advised():
    found = predicted(burst=500, mcap=250.0)
    assert (found["predicted"], found["enough"]) == (False, {"rate": None, "burst": None, "limit": "room"})


def test_where_tokens_for_more_brokers_are_missing_a_burst_is_advised_and_no_rate():
    found = predicted(burst=1, brokers="ab", mcap=250.0)
    assert found["enough"]["rate"] is None
    assert predicted(burst=found["enough"]["burst"], brokers="ab", mcap=250.0)["predicted"]


def test_what_is_advised_is_never_what_is_there():
    found = predicted(burst=82, brokers="ab", mcap=300.0, services=500_000)
    assert not found["predicted"]
    assert found["enough"]["burst"] > 82
    assert found["enough"]["rate"] > 600


def test_an_automatic_burst_knows_how_long_brokers_take():
    fast, slow = (predicted(burst="auto", brokers="ab", mcap=300.0, services=ns) for ns in (15_000, 500_000))
    assert fast["predicted"]
    assert slow["predicted"]


def test_of_a_burst_that_follows_the_rate_no_rate_is_advised():
    enough = predicted(burst="auto", confidence=99.0)["enough"]
    assert enough["rate"] is None
    assert predicted(burst=enough["burst"], confidence=99.0)["predicted"]


@pytest.mark.slow
def test_more_burst_is_kept_at_least_as_often(monkeypatch):
    monkeypatch.setattr(minute_verdict, "BLOCK", 100)  # all are judged on the same minutes
    monkeypatch.setattr(minute_verdict, "MOST_MINUTES", 100)
    kept = [predicted(burst=burst)["kept"]["kept"] for burst in (20, 30, 40, 60, 100)]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


def test_one_message_longer_than_the_promise_is_no_matter_of_the_bucket():
    found = predicted(slo={"percentile": 99, "latency_ms": 0.01})
    assert found["enough"] == {"rate": None, "burst": None, "limit": "service"}
    found = predicted(slo={"percentile": 99, "latency_ms": 0.1})  # ten together take 0.15 ms
    assert found["enough"] == {"rate": None, "burst": None, "limit": "processing"}


def test_too_many_messages_are_told_by_formula(monkeypatch):
    monkeypatch.setattr(minute_verdict, "MOST_MESSAGES", 1_000)
    found = predicted(burst=500)
    assert (found["kept"]["method"], found["kept"]["minutes"], found["predicted"]) == ("formula", 0, True)


def test_nobody_with_a_place_is_no_promise_and_nobody_at_all_is_one():
    assert predicted(publishers=[])["predicted"] is True
    partial = predicted(mcap=200.0, burst=500)
    assert partial["predicted"] is False


@pytest.mark.parametrize("confidence", [49.0, 99.5, float("nan"), -1.0])
def test_a_confidence_out_of_range_is_refused(confidence):
    with pytest.raises(BadInput, match="confidence"):
        checked_confidence(confidence)
