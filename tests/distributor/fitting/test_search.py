"""The next layout, computed from a trace: which way to go, and what is missing where there is none."""

import numpy as np
import pytest

from distributor.fitting.events import Missing, Task
from distributor.fitting.layout_model import Refuted, recording
from distributor.fitting.search import layout_for, least_measuring_ns, missing_by_rate, proportional, search, settle_ns
from distributor.model.columns import ALONE, NOWHERE
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.replay import Latency, Trace

MICRO = 1_000_000
MS = 1_000_000  # ns
SECOND = 1_000_000_000
GROUP = 60


def free_brokers(count):
    return [BrokerCapacity(name=f"b{at}", mcap=0.0) for at in range(count)]


def burst_task(burst=600.0, **more):
    """Groups of 60 that fire once a second, one message each, in turn."""
    demand = Demand(rates=np.ones(600), groups=np.arange(600) // GROUP, rate=660.0, burst=burst)
    return Task(demand=demand, percentile=99, target_ns=MS, **more)


def recorded(trace):
    return recording({"b0": trace})


def burst_trace(service_ns):
    """Of 20 s."""
    firing = np.arange(200)
    publisher = (firing[:, None] % 10 * GROUP + np.arange(GROUP)).ravel()
    return recorded(
        Trace(
            publisher=publisher,
            arrival_ns=np.repeat(firing * 100 * MS, GROUP),
            service_ns=np.full(len(publisher), service_ns, dtype=np.int64),
        )
    )


@pytest.mark.parametrize(("service_us", "k"), [(10, 1), (20, 2), (40, 3), (60, 4)])
def test_k_jumps_to_what_the_service_time_asks_for(service_us, k):
    outcome = search(burst_task(), free_brokers(6), [burst_trace(service_us * 1_000)], [])
    assert len(outcome.found.layout.brokers) == k
    assert outcome.found.worst_ns <= MS
    assert outcome.missing is None


def test_among_many_brokers_it_takes_larger_steps_and_still_finds_the_fewest():
    # A message takes 0.93 ms, so no two of a group of 60 may share a broker; of the steps, 57 is too few and 64 enough.
    outcome = search(burst_task(), free_brokers(70), [burst_trace(930_000)], [])
    assert len(outcome.found.layout.brokers) == 60


def test_everybody_is_placed_and_every_group_gives_up_publishers_in_proportion():
    layout = search(burst_task(), free_brokers(6), [burst_trace(40_000)], []).found.layout
    assert NOWHERE not in layout.placement
    for group in range(10):
        assert np.bincount(layout.placement[group * GROUP : (group + 1) * GROUP]).tolist() == [20, 20, 20]
    assert sum(rate for rate, _ in layout.shares_micro) == 660 * MICRO
    assert sum(burst for _, burst in layout.shares_micro) == 600 * MICRO


def test_where_access_breaks_the_promise_it_concentrates():
    # Poisson publishers on their own: one bucket is enough, and a third of it for a third of them is not.
    rng = np.random.default_rng(1)
    demand = Demand(rates=np.full(100, 100.0), groups=np.full(100, ALONE), rate=11_000.0, burst=25.0)
    trace = Trace(
        publisher=rng.integers(0, 100, 200_000),
        arrival_ns=np.sort(rng.integers(0, 20 * SECOND, 200_000)),
        service_ns=np.full(200_000, 1_000, dtype=np.int64),
    )
    brokers = free_brokers(3)
    task = Task(demand=demand, percentile=99, target_ns=2 * MS)
    three = layout_for(task, brokers, proportional, 3_400)
    measured = {
        name: Latency(count=1, access_ns=9 * MS, processing_ns=2_000, total_ns=9 * MS) for name in three.brokers
    }
    outcome = search(task, brokers, [recorded(trace)], [Refuted(layout=three, latency=measured)])
    assert (len(three.brokers), len(outcome.found.layout.brokers)) == (3, 1)


def test_what_was_measured_above_the_target_is_not_tried_again():
    task, brokers, traces = burst_task(), free_brokers(6), [burst_trace(20_000)]
    first = search(task, brokers, traces, []).found
    refuted = Refuted(layout=first.layout, latency={name: Latency(total_ns=2 * MS) for name in first.layout.brokers})
    assert len(search(task, brokers, traces, [refuted]).found.layout.brokers) == len(first.layout.brokers) + 1


def test_where_brokers_are_short_it_says_how_many():
    whole, half = burst_trace(60_000).trace, np.arange(600) % 2 == 0
    both = recording({"b0": whole.of(half), "b1": whole.of(~half)})
    outcome = search(burst_task(), free_brokers(2), [both], [])
    assert outcome.found is None
    assert outcome.missing == Missing(brokers=2)


def test_before_brokers_are_called_too_few_those_that_were_not_measured_are_tried():
    outcome = search(burst_task(), free_brokers(2), [burst_trace(60_000)], [])
    assert outcome.found.layout.brokers == ("b0", "b1")
    assert outcome.found.worst_ns > MS


def test_where_one_bucket_is_too_small_it_says_which_burst_would_do():
    outcome = search(burst_task(burst=20.0), free_brokers(4), [burst_trace(1_000)], [])
    assert outcome.found is None
    assert outcome.missing.brokers == 0
    enough = outcome.missing.burst
    assert search(burst_task(burst=enough), free_brokers(4), [burst_trace(1_000)], []).found is not None
    assert search(burst_task(burst=enough - 1), free_brokers(4), [burst_trace(1_000)], []).found is None


def test_a_full_broker_gets_no_more_than_it_keeps():
    layout = layout_for(burst_task(full={"b0": 100.0, "b1": 0.0}), free_brokers(3), proportional)
    assigned = dict(zip(layout.brokers, np.bincount(layout.placement).tolist(), strict=True))
    assert assigned.get("b0", 0) <= 100
    assert "b1" not in assigned


def test_publishers_that_fit_nowhere_by_their_rates_make_no_layout():
    brokers = [BrokerCapacity(name="b0", mcap=250.0)]
    assert layout_for(burst_task(), brokers, proportional) is None
    assert missing_by_rate(burst_task(), brokers) == Missing(brokers=2)
    assert missing_by_rate(burst_task(), []) == Missing(brokers=1)


def test_buckets_that_grow_are_given_the_time_to_fill():
    task = burst_task()
    one = layout_for(task, free_brokers(1), proportional)
    two = layout_for(task, free_brokers(2), proportional, 300)
    nobody = layout_for(task, free_brokers(2), proportional, 300)
    assert settle_ns(task.demand, one, two) == 10 * SECOND  # 300 tokens at 30 msg/s of slack
    assert settle_ns(task.demand, two, nobody) == 0


def test_where_one_broker_is_slower_it_alone_keeps_less():
    # Both had half; b1 takes three times as long. 60 messages of 20 us at once are 1.2 ms, 16 of 60 us are 0.96.
    half = burst_trace(20_000).trace
    slow = np.arange(600) % 2 == 1
    both = recording({"b0": half.of(~slow), "b1": half.of(slow).slower(3.0)})
    task, brokers = burst_task(), free_brokers(2)
    measured = {"b0": Latency(total_ns=MS // 2), "b1": Latency(processing_ns=9 * MS // 5, total_ns=9 * MS // 5)}
    refuted = Refuted(layout=layout_for(task, brokers, proportional, 300.0), latency=measured)
    found = search(task, brokers, [both], [refuted]).found
    heads = dict(zip(found.layout.brokers, np.bincount(found.layout.placement).tolist(), strict=True))
    assert heads["b1"] < 170  # a group of ten may have one more: a message in a hundred may be late
    assert heads["b0"] + heads["b1"] == 600
    assert found.worst_ns <= MS


@pytest.mark.parametrize(
    ("rate", "periodic", "least_s"),
    [(1.0, False, 1), (10.0, True, 1), (0.5, True, 2), (0.01, True, 10)],
)
def test_a_layout_is_measured_for_one_period_of_who_is_periodic_and_for_1_to_10_s(rate, periodic, least_s):
    columns = {"batches": np.ones(3), "periodic": np.array([periodic, False, False])}
    rates = np.array([rate, 1.0, 1.0])
    demand = Demand(rates=rates, groups=np.full(3, ALONE), rate=20.0, burst=3.0, **columns)
    assert least_measuring_ns(demand) == least_s * SECOND
