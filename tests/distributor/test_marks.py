"""Marks of full brokers: kept apart by promise and traffic, lifted when something leaves."""

import numpy as np

from distributor.fitting.events import Layout, Task
from distributor.fitting.layout_model import Model, Recording
from distributor.fitting.marks import FullMarks, TrafficClass, kept_by, traffic_class
from distributor.placement.allocation import Demand
from distributor.prediction.replay import Trace
from srtm.topics.publisher_blocks import read_block
from srtm.topics.publishers import join
from srtm.topics.spec import Slo

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


def test_what_is_found_besides_replaces_only_what_was_known_of_the_same():
    marks = FullMarks().marked(SLO, BURSTY, {"b0": 1_500.0, "b1": 2.0})
    both = marks.joined(FullMarks().marked(SLO, BURSTY, {"b0": 1_200.0}).marked(SLO, SINGLE, {"b0": 9.0}))
    assert both.of(SLO, BURSTY) == {"b0": 1_200.0, "b1": 2.0}
    assert both.of(SLO, SINGLE) == {"b0": 9.0}


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


def test_without_a_model_a_broker_keeps_what_it_has_and_one_that_has_nothing_is_not_marked():
    demand = Demand(rates=np.ones(4), groups=np.zeros(4, dtype=np.int64), rate=5.0, burst=4.0)
    layout = Layout(brokers=("b0", "b1"), placement=np.array([0, 0, 0, 1]), shares_micro=((3, 3), (2, 1)))
    task = Task(demand=demand, percentile=99, target_ns=1, full={"b1": 0.5})
    assert kept_by(task, layout, {"b0", "b1", "b2"}, {"b1"}, None) == {"b0": 3.0, "b1": 0.5}
    whole = Layout(brokers=("b0",), placement=np.zeros(4, dtype=np.int64), shares_micro=((5, 4),))
    assert kept_by(task, whole, {"b0"}, set(), None) == {}


def test_a_broker_that_is_left_idle_is_marked_with_what_the_model_says_it_can_process():
    groups = np.zeros(50, dtype=np.int64)
    demand = Demand(rates=np.ones(50), groups=groups, rate=55.0, burst=50.0)
    task = Task(demand=demand, percentile=99, target_ns=1_000_000)
    bursts = Trace(  # 50 at once, of 40 us each
        publisher=np.tile(np.arange(50), 20),
        arrival_ns=np.repeat(np.arange(20) * 1_000_000_000, 50),
        service_ns=np.full(1_000, 40_000),
    )
    model = Model(task, [Recording(trace=bursts, service_ns={"b0": 40_000.0})], [])
    elsewhere = Layout(brokers=("b1",), placement=groups, shares_micro=((55_000_000, 50_000_000),))
    assert kept_by(task, elsewhere, {"b0"}, set(), model) == {"b0": 24.0}  # 0.96 ms
