"""Delays that a recorded trace implies: against the reference bucket and a queue worked message by message."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributor.prediction.replay import (
    Trace,
    delays,
    enough_burst_micro,
    joined,
    latency,
    measured_service_ns,
    sojourn_ns,
)
from srtm.token_bucket.bucket import Bucket
from srtm.token_bucket.replay import NEVER_NS

MICRO = 1_000_000
MS = 1_000_000  # ns
SECOND = 1_000_000_000
FREE = (10**15, 10**9 * MICRO)  # a share that delays nobody


def trace(arrival_ns, publisher=None, service_ns=0):
    arrival_ns = np.asarray(arrival_ns, dtype=np.int64)
    publisher = np.zeros(len(arrival_ns)) if publisher is None else publisher
    return Trace(
        publisher=np.asarray(publisher, dtype=np.int64),
        arrival_ns=arrival_ns,
        service_ns=np.full(len(arrival_ns), service_ns, dtype=np.int64),
    )


def one_by_one(due_ns, service_ns):
    free_ns, found = 0, []
    for due, service in zip(due_ns, service_ns, strict=True):
        free_ns = max(due, free_ns) + service
        found.append(free_ns - due)
    return found


def latencies(trace, placement, shares):
    """Of each broker: the 99th percentile of access and processing, ns, and how many messages."""
    parts = trace.by_broker(placement, len(shares))
    found = [latency([delays(part, share)], 99) for part, share in zip(parts, shares, strict=True)]
    return [(one.access_ns, one.processing_ns, one.count) for one in found]


messages = st.lists(
    st.tuples(st.integers(0, 5 * MS), st.integers(0, 3), st.integers(0, 4 * MS)), min_size=1, max_size=60
)


@given(messages, st.integers(MICRO, 2_000 * MICRO), st.integers(MICRO, 9 * MICRO), st.sets(st.integers(0, 3)))
def test_any_subset_waits_as_in_the_reference_bucket_and_a_queue_of_its_own(rows, rate, burst, chosen):
    gaps, publishers, services = zip(*rows, strict=True)
    recorded = Trace(
        publisher=np.array(publishers), arrival_ns=np.cumsum(gaps), service_ns=np.array(services, dtype=np.int64)
    )
    part = recorded.of(np.array([publisher in chosen for publisher in range(4)]))
    found = delays(part, (rate, burst))
    arrivals = part.arrival_ns.tolist()
    bucket = Bucket(rate, burst, arrivals[0] if arrivals else 0)
    due_ns = [bucket.take(1, at) for at in arrivals]
    assert (part.arrival_ns + found.access_ns).tolist() == due_ns
    assert found.processing_ns.tolist() == one_by_one(due_ns, part.service_ns.tolist())
    assert found.total_ns.tolist() == (found.access_ns + found.processing_ns).tolist()


@given(messages)
def test_service_times_are_found_again_in_what_a_server_did(rows):
    gaps, _, services = zip(*rows, strict=True)
    due_ns, service_ns = np.cumsum(gaps), np.array(services, dtype=np.int64)
    sent_ns = due_ns + sojourn_ns(due_ns, service_ns)
    assert measured_service_ns(due_ns, sent_ns)[1:].tolist() == service_ns[1:].tolist()


@given(messages, st.integers(0, 4 * SECOND))
def test_what_waited_before_the_first_message_is_no_service(rows, waited_ns):
    gaps, _, services = zip(*rows, strict=True)
    due_ns, service_ns = np.cumsum(gaps), np.array(services, dtype=np.int64)
    sent_ns = due_ns + sojourn_ns(due_ns, service_ns, int(due_ns[0]) + waited_ns)
    found_ns = measured_service_ns(due_ns, sent_ns)
    assert found_ns[1:].tolist() == service_ns[1:].tolist()
    if len(rows) > 1:
        assert found_ns[0] <= service_ns[1:].max()


def test_a_share_of_nothing_lets_nothing_go():
    found = delays(trace([1, 2, 3], service_ns=MS), (0, 0))
    assert found.total_ns.tolist() == [NEVER_NS] * 3
    assert latency([found], 99).total_ns == NEVER_NS


def test_a_group_that_is_split_in_two_queues_half_as_long_on_each():
    # 40 publishers that fire together, one message each, every 100 ms; a message takes 10 us.
    fires = np.repeat(np.arange(50) * 100 * MS, 40)
    recorded = trace(fires, np.tile(np.arange(40), 50), service_ns=10_000)
    whole = latencies(recorded, np.zeros(40, dtype=np.int64), [FREE])
    halves = latencies(recorded, np.arange(40) % 2, [FREE, FREE])
    assert [processing_ns for _, processing_ns, _ in whole] == [400_000]
    assert [processing_ns for _, processing_ns, _ in halves] == [200_000, 200_000]


def test_publishers_that_are_nowhere_are_left_out():
    recorded = trace([0, 0, 0], [0, 1, 2], service_ns=MS)
    assert [count for *_, count in latencies(recorded, np.array([0, -1, 1]), [FREE, FREE, FREE])] == [1, 1, 0]


def test_fewer_publishers_can_make_the_access_delay_worse():
    # Independent publishers; a tenth of them with a tenth of the bucket waits longer.
    rng = np.random.default_rng(1)
    arrival_ns = np.sort(rng.integers(0, 20 * SECOND, 20_000))
    recorded = trace(arrival_ns, rng.integers(0, 100, 20_000))
    placement = (np.arange(100) < 10).astype(np.int64)
    most, few = latencies(recorded, placement, [(990 * MICRO, 18 * MICRO), (110 * MICRO, 2 * MICRO)])
    assert few[0] > 4 * most[0]


@given(messages, st.lists(st.integers(-1, 2), min_size=4, max_size=4))
def test_parting_a_trace_by_broker_is_choosing_each_brokers_publishers(rows, placement):
    gaps, publishers, services = zip(*rows, strict=True)
    recorded = Trace(publisher=np.array(publishers), arrival_ns=np.cumsum(gaps), service_ns=np.array(services))
    placement = np.array(placement)
    for at, part in enumerate(recorded.by_broker(placement, 3)):
        chosen = recorded.of(placement == at)
        assert part.publisher.tolist() == chosen.publisher.tolist()
        assert part.arrival_ns.tolist() == chosen.arrival_ns.tolist()
        assert part.service_ns.tolist() == chosen.service_ns.tolist()


def test_traces_of_several_brokers_are_joined_in_order_of_arrival():
    both = joined([trace([5, 9], [1, 1]), trace([3, 7], [2, 2])])
    assert both.arrival_ns.tolist() == [3, 5, 7, 9]
    assert both.publisher.tolist() == [2, 1, 2, 1]


def test_the_burst_that_is_enough_is_the_smallest_that_keeps_the_target():
    recorded = [trace(np.repeat(np.arange(30) * 100 * MS, 25))]
    burst = enough_burst_micro(recorded, 1_000 * MICRO, 99, 2 * MS)
    assert burst == 23 * MICRO  # two of 25 may wait 1 and 2 ms for their token
    assert latency([delays(recorded[0], (1_000 * MICRO, burst))], 99).access_ns <= 2 * MS
    assert latency([delays(recorded[0], (1_000 * MICRO, burst - MICRO))], 99).access_ns > 2 * MS
