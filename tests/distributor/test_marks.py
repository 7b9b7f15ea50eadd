"""Marks of full brokers: kept apart by promise and traffic, lifted when something leaves."""

from distributor.marks import FullMarks, TrafficClass, traffic_class
from srtm.publisher_blocks import read_block
from srtm.publishers import join
from srtm.topic import Slo

SLO = Slo(percentile=99, latency_ms=1)
SINGLE = TrafficClass(process="poisson", batch=1, group=1)
BURSTY = TrafficClass(process="poisson", batch=10, group=25)


def test_a_broker_is_full_for_one_promise_and_one_kind_of_traffic_only():
    marks = FullMarks().marked(SLO, BURSTY, {"b0": 1_500.0, "b1": 0.0})
    assert marks.of(SLO, BURSTY) == {"b0": 1_500.0, "b1": 0.0}
    assert marks.of(SLO, SINGLE) == {}
    assert marks.of(Slo(percentile=99, latency_ms=10), BURSTY) == {}


def test_a_later_mark_replaces_the_earlier_one():
    marks = FullMarks().marked(SLO, BURSTY, {"b0": 1_500.0}).marked(SLO, BURSTY, {"b0": 1_200.0})
    assert marks.of(SLO, BURSTY) == {"b0": 1_200.0}


def test_when_something_leaves_a_broker_it_is_no_longer_full():
    marks = FullMarks().marked(SLO, BURSTY, {"b0": 1.0, "b1": 2.0}).marked(SLO, SINGLE, {"b0": 3.0})
    lifted = marks.lifted("b0")
    assert lifted.of(SLO, BURSTY) == {"b1": 2.0}
    assert lifted.of(SLO, SINGLE) == {}
    assert marks.of(SLO, SINGLE) == {"b0": 3.0}


def test_the_traffic_class_is_that_of_most_publishers_the_largest_batch_and_the_largest_group():
    blocks = [
        {"count": 60, "rate": 10, "group_size": 25, "id_prefix": "a-", "batch": 10, "process": "periodic"},
        {"count": 5, "rate": 10, "id_prefix": "b-"},
    ]
    found = traffic_class(join([read_block(block, at) for at, block in enumerate(blocks)]))
    assert found == TrafficClass(process="periodic", batch=10, group=25)
    assert traffic_class(join([read_block(blocks[1], 0)])) == SINGLE
