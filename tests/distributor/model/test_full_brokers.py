"""Caps of full brokers: apart by promise and traffic, gone when something leaves."""

from distributor.model.full_brokers import CapacityCaps, TrafficClass, traffic_class
from srtm.topics.publisher_blocks import read_blocks
from srtm.topics.publishers import join
from srtm.topics.spec import Slo

SLO = Slo(percentile=99, latency_ms=1)
SINGLE = TrafficClass(process="poisson", batch=1, group=1)
BURSTY = TrafficClass(process="poisson", batch=10, group=25)


def test_a_broker_is_full_for_one_promise_and_one_kind_of_traffic_only():
    caps = CapacityCaps().with_caps(SLO, BURSTY, {"b0": 1_500.0, "b1": 0.0})
    assert caps.of(SLO, BURSTY) == {"b0": 1_500.0, "b1": 0.0}
    assert caps.of(SLO, SINGLE) == {}
    assert caps.of(Slo(percentile=99, latency_ms=10), BURSTY) == {}


def test_a_later_cap_replaces_the_earlier_one():
    caps = CapacityCaps().with_caps(SLO, BURSTY, {"b0": 1_500.0}).with_caps(SLO, BURSTY, {"b0": 1_200.0})
    assert caps.of(SLO, BURSTY) == {"b0": 1_200.0}


def test_what_is_found_besides_replaces_only_what_was_known_of_the_same():
    caps = CapacityCaps().with_caps(SLO, BURSTY, {"b0": 1_500.0, "b1": 2.0})
    both = caps.merged(CapacityCaps().with_caps(SLO, BURSTY, {"b0": 1_200.0}).with_caps(SLO, SINGLE, {"b0": 9.0}))
    assert both.of(SLO, BURSTY) == {"b0": 1_200.0, "b1": 2.0}
    assert both.of(SLO, SINGLE) == {"b0": 9.0}


def test_when_something_leaves_a_broker_it_is_no_longer_full():
    caps = CapacityCaps().with_caps(SLO, BURSTY, {"b0": 1.0, "b1": 2.0}).with_caps(SLO, SINGLE, {"b0": 3.0})
    left = caps.without("b0")
    assert left.of(SLO, BURSTY) == {"b1": 2.0}
    assert left.of(SLO, SINGLE) == {}
    assert caps.of(SLO, SINGLE) == {"b0": 3.0}


def test_the_traffic_class_is_that_of_most_publishers_the_largest_batch_and_the_largest_group():
    blocks = [
        {"count": 60, "rate": 10, "group_size": 25, "id_prefix": "a-", "batch": 10, "process": "periodic"},
        {"count": 5, "rate": 10, "id_prefix": "b-"},
    ]
    found = traffic_class(join(read_blocks(blocks)))
    assert found == TrafficClass(process="periodic", batch=10, group=25)
    assert traffic_class(join(read_blocks(blocks[1:2]))) == SINGLE
