"""What recorded rounds say of brokers and layouts: by the service times of each, and no more than was kept before."""

import numpy as np

from distributor.fitting.events import Layout, Task
from distributor.fitting.layout_model import Model, Recording, Refuted, recording
from distributor.placement.allocation import Demand
from distributor.prediction.replay import Latency, Trace

MICRO = 1_000_000
MS = 1_000_000  # ns
SECOND = 1_000_000_000


def bursts(publishers, service_ns, turns=50):
    """All of ``publishers`` fire together, once a second."""
    return Trace(
        publisher=np.tile(publishers, turns),
        arrival_ns=np.repeat(np.arange(turns) * SECOND, len(publishers)),
        service_ns=np.full(len(publishers) * turns, service_ns, dtype=np.int64),
    )


TASK = Task(
    demand=Demand(rates=np.ones(100), groups=np.zeros(100, dtype=np.int64), rate=110.0, burst=100.0),
    percentile=99,
    target_ns=MS,
)
SLOW_AND_FAST = recording({"fast": bursts(np.arange(50), 10_000), "slow": bursts(np.arange(50, 100), 30_000)})


def halves(*brokers):
    return Layout(brokers=brokers, placement=np.arange(100) % 2, shares_micro=((55 * MICRO, 50 * MICRO),) * 2)


def test_a_recording_holds_all_messages_as_a_typical_broker_would_have_served_them():
    assert isinstance(SLOW_AND_FAST, Recording)
    assert SLOW_AND_FAST.service_ns == {"fast": 10_000, "slow": 30_000}
    assert set(SLOW_AND_FAST.trace.service_ns.tolist()) == {20_000}
    assert sorted(set(SLOW_AND_FAST.trace.publisher.tolist())) == list(range(100))


def test_of_a_round_in_which_nothing_arrived_there_is_no_recording():
    assert recording({"b0": bursts(np.arange(0), 1)}) is None


def test_every_broker_is_predicted_by_its_own_service_times_and_a_stranger_as_typical():
    model = Model(TASK, [SLOW_AND_FAST], [])
    found = model.judged(halves("slow", "stranger")).latency
    assert found["slow"].processing_ns == 50 * 30_000
    assert found["stranger"].processing_ns == 50 * 20_000


def test_the_worst_broker_decides():
    model = Model(TASK, [SLOW_AND_FAST], [])
    judged = model.judged(halves("fast", "slow"))
    assert judged.worst_ns == 50 * 30_000
    assert not model.keeps(judged)
    assert model.keeps(model.judged(halves("fast", "fast too")), 1.0)


def test_a_broker_can_keep_as_many_as_its_service_time_allows():
    # 0.96 ms: 96 at once of 10 us, 32 of 30 us.
    model = Model(TASK, [SLOW_AND_FAST], [])
    assert (model.keepable("fast"), model.keepable("slow")) == (96, 32)
    assert model.keepable("stranger") == 48


def test_a_broker_is_known_once_it_was_measured():
    model = Model(TASK, [SLOW_AND_FAST], [])
    assert model.knows(["slow"])
    assert not model.knows(["slow", "stranger"])


def test_a_refuted_layout_counts_as_it_was_measured():
    measured = Latency(count=5_000, access_ns=MS // 5, processing_ns=3 * MS // 2, total_ns=17 * MS // 10)
    refuted = Refuted(layout=halves("x", "y"), latency={"x": measured, "y": measured})
    model = Model(TASK, [SLOW_AND_FAST], [refuted])
    assert model.is_refuted(halves("x", "y"))
    assert model.judged(halves("x", "y")).latency["x"] == measured
    assert not model.is_refuted(halves("x", "z"))
    assert model.judged(halves("x", "z")).worst_ns == MS


def test_a_burst_that_is_enough_is_asked_for_only_where_the_topics_own_is_not():
    assert Model(TASK, [SLOW_AND_FAST], []).enough_burst() == 0
    small = Task(
        demand=Demand(rates=np.ones(100), groups=np.zeros(100, dtype=np.int64), rate=110.0, burst=20.0),
        percentile=99,
        target_ns=MS,
    )
    assert Model(small, [SLOW_AND_FAST], []).enough_burst() == 99  # one in a hundred may wait
