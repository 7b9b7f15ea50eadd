"""What lost rounds leave behind: second chances, what is believed of the machine, and the best of what was measured."""

from dataclasses import replace

import numpy as np

from distributor.fitting.events import Layout, Missing, Task
from distributor.fitting.evidence import Evidence, kept_by
from distributor.fitting.layout_model import Model, Recording, recording
from distributor.fitting.search import Outcome, proportional
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.replay import Latency, Trace

MICRO = 1_000_000
MS = 1_000_000  # ns
SECOND = 1_000_000_000
TASK = Task(
    demand=Demand(rates=np.ones(100), groups=np.zeros(100, dtype=np.int64), rate=110.0, burst=100.0),
    percentile=99,
    target_ns=MS,
)
BROKERS = [BrokerCapacity(name=f"b{at}", mcap=0.0) for at in range(4)]
ON_ONE = Layout(brokers=("b0",), placement=np.zeros(100, dtype=np.int64), shares_micro=((110 * MICRO, 100 * MICRO),))
LATE = {"b0": Latency(count=5_000, processing_ns=2 * MS, total_ns=2 * MS)}


def recorded(service_ns, excess_ns=0):
    """All fire together, once a second; a message in twenty leaves so much later than it was served."""
    trace = Trace(
        publisher=np.tile(np.arange(100), 50),
        arrival_ns=np.repeat(np.arange(50) * SECOND, 100),
        service_ns=np.full(5_000, service_ns, dtype=np.int64),
    )
    return recording({"b0": replace(trace, excess_ns=np.arange(5_000) % 20 // 19 * excess_ns)})


def next_brokers(evidence):
    found = evidence.next(TASK, BROKERS, proportional, lambda _layout: True)
    assert isinstance(found, Layout)
    return len(found.brokers)


def test_a_layout_is_doubted_once_where_its_arrivals_would_have_been_in_time():
    evidence, in_time, too_late = Evidence(), recorded(9_000, excess_ns=MS), recorded(11_000)
    assert evidence.is_doubtful(TASK, ON_ONE, in_time)
    assert not evidence.is_doubtful(TASK, ON_ONE, too_late)
    evidence.doubt(ON_ONE, in_time)
    assert (evidence.chances(ON_ONE), evidence.is_doubtful(TASK, ON_ONE, in_time)) == (1, False)


def test_what_the_machine_adds_counts_for_the_next_layout_once_a_layout_was_lost_for_it_twice():
    # A burst takes 1.1 ms on one broker, 0.55 on two; with 0.6 of the machine three take 0.97, four 0.88.
    once, twice = Evidence(), Evidence()
    once.refute(ON_ONE, LATE, recorded(11_000, excess_ns=600_000))
    twice.doubt(ON_ONE, recorded(11_000, excess_ns=600_000))
    twice.refute(ON_ONE, LATE, recorded(11_000, excess_ns=600_000))
    assert (next_brokers(once), next_brokers(twice)) == (2, 4)


def test_where_nothing_was_recorded_each_loss_asks_for_one_more_broker():
    evidence = Evidence()
    assert evidence.model(TASK) is None
    assert next_brokers(evidence) == 1
    evidence.refute(ON_ONE, LATE, None)
    assert next_brokers(evidence) == 2


def test_without_a_layout_to_try_the_best_is_one_that_may_be():
    evidence = Evidence()
    evidence.refute(ON_ONE, LATE, None)
    found = evidence.next(TASK, BROKERS[:1], proportional, lambda _layout: True)
    assert isinstance(found, Outcome)
    assert found.best is not None
    assert (found.best.layout, found.missing) == (ON_ONE, Missing(brokers=1))
    assert evidence.best_measured(lambda _layout: False) is None


def test_without_a_model_a_broker_keeps_what_it_has_and_one_that_has_nothing_has_no_cap():
    demand = Demand(rates=np.ones(4), groups=np.zeros(4, dtype=np.int64), rate=5.0, burst=4.0)
    layout = Layout(brokers=("b0", "b1"), placement=np.array([0, 0, 0, 1]), shares_micro=((3, 3), (2, 1)))
    task = Task(demand=demand, percentile=99, target_ns=1, full={"b1": 0.5})
    assert kept_by(task, layout, {"b0", "b1", "b2"}, {"b1"}, None) == {"b0": 3.0, "b1": 0.5}
    whole = Layout(brokers=("b0",), placement=np.zeros(4, dtype=np.int64), shares_micro=((5, 4),))
    assert kept_by(task, whole, {"b0"}, set(), None) == {}


def test_a_broker_that_is_left_idle_is_capped_at_what_the_model_says_it_can_process():
    groups = np.zeros(50, dtype=np.int64)
    demand = Demand(rates=np.ones(50), groups=groups, rate=55.0, burst=50.0)
    task = Task(demand=demand, percentile=99, target_ns=MS)
    bursts = Trace(  # 50 at once, of 40 us each
        publisher=np.tile(np.arange(50), 20),
        arrival_ns=np.repeat(np.arange(20) * 1_000_000_000, 50),
        service_ns=np.full(1_000, 40_000),
    )
    model = Model(task, [Recording(trace=bursts, service_ns={"b0": 40_000.0})], [])
    elsewhere = Layout(brokers=("b1",), placement=groups, shares_micro=((55_000_000, 50_000_000),))
    assert kept_by(task, elsewhere, {"b0"}, set(), model) == {"b0": 24.0}  # 0.96 ms
