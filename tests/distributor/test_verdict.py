"""The sequential decision on a percentile: right as often as it says, however often it is looked at."""

import numpy as np
import pytest

from distributor.verdict import Intervals, SequentialTest, Verdict, by_interval
from distributor.whatif import sojourn_ns
from srtm.errors import BadInput

MS = 1_000_000  # ns
SECOND = 1_000_000_000


def queued(rng, bursts_per_s, size, service_ns, seconds):
    """Arrivals and latencies of Poisson bursts at one server: autocorrelated, the more so the busier it is."""
    bursts = rng.poisson(bursts_per_s * seconds)
    arrival_ns = np.repeat(np.sort(rng.integers(0, seconds * SECOND, bursts)), size)
    return arrival_ns, sojourn_ns(arrival_ns, np.full(len(arrival_ns), service_ns))


def decide(arrival_ns, latency_ns, target_ns, look_ns, confidence=0.99):
    test = SequentialTest(99, confidence)
    looks = np.searchsorted(arrival_ns, np.arange(look_ns, arrival_ns[-1], look_ns))
    for arrived, took in zip(np.split(arrival_ns, looks), np.split(latency_ns, looks), strict=True):
        test.add(by_interval(arrived, took, target_ns, MS))
        if test.verdict is not Verdict.UNDECIDED:
            break
    return test


QUEUES = {  # bursts/s, messages in each, service time
    "bursts that seldom meet": (200, 50, 10_000),
    "bursts that often meet": (100, 50, 120_000),
    "single messages at a busy server": (2_000, 1, 440_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("queue", QUEUES.values(), ids=list(QUEUES))
@pytest.mark.parametrize(("late", "wrong"), [(0.0125, Verdict.BELOW), (0.008, Verdict.ABOVE)])
def test_a_wrong_verdict_is_as_rare_as_stated_under_repeated_looks(queue, late, wrong):
    # A long run gives the target for which the true fraction of late messages is known.
    target_ns = int(np.quantile(queued(np.random.default_rng(1), *queue, 600)[1], 1 - late))
    rng = np.random.default_rng(2)
    verdicts = [decide(*queued(rng, *queue, 8), target_ns, SECOND).verdict for _ in range(200)]
    assert verdicts.count(wrong) <= 2


def rare_and_large(rng):
    """One burst in fifty has a hundred messages, all late in one of two: a good percent more than a percent is late."""
    count = np.where(rng.random(1_500) < 0.02, 100, 1)
    late = np.where((count > 1) & (rng.random(1_500) < 0.0205), count, 0)
    at = np.arange(1_500) * 3
    return Intervals(at=at, count=count, late=late, latency_ns=count * MS)


def test_a_wrong_verdict_is_as_rare_as_stated_where_few_bursts_bring_most_messages():
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(300):
        whole, test = rare_and_large(rng), SequentialTest(99)
        for part in np.array_split(np.arange(len(whole)), 12):
            test.add(
                Intervals(
                    at=whole.at[part],
                    count=whole.count[part],
                    late=whole.late[part],
                    latency_ns=whole.latency_ns[part],
                )
            )
            if test.verdict is Verdict.BELOW:
                wrong += 1
                break
    assert wrong <= 3


def test_below_sixteen_blocks_nothing_is_said():
    for bursts, verdict in ((15, Verdict.UNDECIDED), (16, Verdict.ABOVE)):
        arrival_ns = np.repeat(np.arange(bursts) * 5 * MS, 50)
        assert decide(arrival_ns, np.full(len(arrival_ns), 2 * MS), MS, 100 * MS).verdict is verdict


@pytest.mark.parametrize(("quantile", "right"), [(0.9995, Verdict.BELOW), (0.94, Verdict.ABOVE)])
def test_what_is_clear_is_decided_within_seconds(quantile, right):
    queue = QUEUES["bursts that seldom meet"]
    target_ns = int(np.quantile(queued(np.random.default_rng(1), *queue, 300)[1], quantile))
    rng = np.random.default_rng(3)
    for _ in range(10):
        assert decide(*queued(rng, *queue, 20), target_ns, SECOND // 4).verdict is right


def test_without_a_late_message_it_takes_about_five_hundred_blocks():
    for bursts, verdict in ((450, Verdict.UNDECIDED), (520, Verdict.BELOW)):
        arrival_ns = np.repeat(np.arange(bursts) * 5 * MS, 50)
        assert decide(arrival_ns, np.full(len(arrival_ns), MS // 2), MS, 100 * MS).verdict is verdict


def test_messages_of_one_burst_are_no_more_evidence_than_one():
    few, many = (
        decide(np.repeat(np.arange(300) * 5 * MS, size), np.zeros(300 * size, dtype=np.int64), MS, 100 * MS)
        for size in (1, 100)
    )
    assert few.verdict is many.verdict is Verdict.UNDECIDED
    assert few.blocks == many.blocks == 300


def test_a_burst_that_lies_across_the_edge_of_an_interval_is_one_observation():
    # 300 bursts that take 0.6 ms to arrive, at any phase of the millisecond.
    rng = np.random.default_rng(5)
    fires_ns = np.arange(300) * 5 * MS + rng.integers(0, MS, 300)
    arrival_ns = np.sort((fires_ns[:, None] + np.linspace(0, 0.6 * MS, 50).astype(np.int64)).ravel())
    test = decide(arrival_ns, np.zeros(len(arrival_ns), dtype=np.int64), MS, 100 * MS)
    assert test.verdict is Verdict.UNDECIDED
    assert test.blocks == 300


def test_an_interval_that_two_reports_share_is_one_observation():
    whole, parts = SequentialTest(99), SequentialTest(99)
    arrival_ns = np.repeat(np.arange(100) * 5 * MS, 10)
    latency_ns = np.zeros(1_000, dtype=np.int64)
    whole.add(by_interval(arrival_ns, latency_ns, MS, MS))
    for half in (slice(0, 495), slice(495, 1_000)):
        parts.add(by_interval(arrival_ns[half], latency_ns[half], MS, MS))
    assert (whole.verdict, parts.verdict) == (Verdict.UNDECIDED, Verdict.UNDECIDED)
    assert (whole.blocks, parts.blocks) == (100, 100)


def test_blocks_grow_where_latency_is_slow_to_change():
    arrival_ns, latency_ns = queued(np.random.default_rng(4), 2_000, 1, 440_000, 20)
    assert decide(arrival_ns, latency_ns, int(latency_ns.max()) + 1, SECOND, 0.999_999).blocks < 4_000


def test_the_more_confidence_is_asked_for_the_longer_it_takes():
    arrival_ns = np.arange(1_500) * 3 * MS
    counts = [
        decide(arrival_ns, np.zeros(1_500, dtype=np.int64), MS, 10 * MS, confidence).count
        for confidence in (0.9, 0.99, 0.999)
    ]
    assert counts == sorted(set(counts))


def test_nothing_is_said_about_nothing():
    test = SequentialTest(99)
    test.add(by_interval(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), MS, MS))
    assert (test.verdict, test.count, test.late_fraction, test.blocks) == (Verdict.UNDECIDED, 0, 0, 0)


@pytest.mark.parametrize("confidence", [0.5, 1, 0, float("nan")])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(BadInput, match="confidence"):
        SequentialTest(99, confidence)
