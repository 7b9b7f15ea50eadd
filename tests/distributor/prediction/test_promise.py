"""In how many minutes a promise is kept, and when the drawing ends."""

import pytest

from distributor.placement.allocation import BrokerCapacity
from distributor.placement.planner import place_anew
from distributor.placement.promise_sizing import PromiseSizing
from distributor.prediction import promise as module
from distributor.prediction.promise import checked_confidence, promise_json
from srtm.errors import BadInput
from srtm.topics.spec import parse_topic_json


def predicted(confidence: float = 95.0, mcap: float = 600.0, **changes: object) -> dict:
    document = {"name": "sensors", "rate": 600.0, "burst": 30, "slo": {"percentile": 99, "latency_ms": 5}}
    publishers = [{"count": 40, "rate": 10, "group_size": 10}]
    topic = parse_topic_json({**document, "publishers": publishers, **changes})
    burst, placement, _ = place_anew(topic, [BrokerCapacity(name="a", mcap=mcap)])
    sizing = PromiseSizing(spec=topic, placement=placement)
    shares = dict(zip(placement.brokers, sizing.shares(topic.rate, burst), strict=True))
    return promise_json(sizing, burst, shares, None, confidence)


def test_a_promise_that_is_always_kept_needs_the_fewest_minutes_that_tell():
    found = predicted(burst=500)
    assert (found["predicted"], found["kept"]["kept"], found["kept"]["minutes"]) == (True, 80, 80)
    assert "enough" not in found


def test_a_promise_that_is_never_kept_is_told_by_the_first_minutes_with_what_would_do():
    found = predicted(burst=10)
    assert (found["predicted"], found["kept"]["kept"], found["kept"]["minutes"]) == (False, 0, 20)
    enough = found["enough"]
    assert predicted(burst=enough["burst"])["kept"]["chance"] >= 0.92
    assert predicted(burst=10, rate=enough["rate"] * 1.1)["kept"]["chance"] >= 0.92


@pytest.mark.slow
def test_more_burst_is_kept_at_least_as_often(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 1_000)  # all are judged on the same minutes
    monkeypatch.setattr(module, "_MOST_MINUTES", 100)
    kept = [predicted(burst=burst)["kept"]["kept"] for burst in (20, 30, 40, 60, 100)]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


def test_one_message_longer_than_the_promise_is_no_matter_of_the_bucket():
    found = predicted(slo={"percentile": 99, "latency_ms": 0.01})
    assert found["enough"] == {"rate": None, "burst": None, "limit": "service"}
    found = predicted(slo={"percentile": 99, "latency_ms": 0.1})  # ten together take 0.15 ms
    assert found["enough"] == {"rate": None, "burst": None, "limit": "processing"}


def test_too_many_messages_are_told_by_formula(monkeypatch):
    monkeypatch.setattr(module, "_MOST_MESSAGES", 1_000)
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
