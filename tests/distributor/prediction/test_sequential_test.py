"""The sequential decision on a percentile: right as often as it says, however often it is looked at."""

import numpy as np
import pytest

from distributor.prediction.replay import sojourn_ns
from distributor.prediction.sequential_test import Intervals, SequentialTest, Verdict, by_interval
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


def batches(rng, seconds):
    return queued(rng, 200, 50, 10_000, seconds)


def busy_batches(rng, seconds):
    """They often meet."""
    return queued(rng, 100, 50, 120_000, seconds)


def singles(rng, seconds):
    """At a busy server."""
    return queued(rng, 2_000, 1, 440_000, seconds)


def fired(at_s, sizes, service_ns):
    order = np.argsort(at_s)
    arrival_ns = np.repeat((at_s[order] * 1e9).astype(np.int64), sizes[order])
    return arrival_ns, sojourn_ns(arrival_ns, np.full(len(arrival_ns), service_ns))


def groups(rng, seconds):
    """Poisson, of unequal sizes."""
    at_s = rng.random(rng.poisson(160 * seconds)) * seconds
    return fired(at_s, rng.choice([10, 20, 40, 80], len(at_s)), 30_000)


def periodic(rng, seconds):
    """40 groups at phases of their own, each firing off its time by up to half a period of 100 ms."""
    phases = np.random.default_rng(3).random(40)
    turns = np.repeat(np.arange(10 * seconds), 40)
    at_s = (turns + np.tile(phases, 10 * seconds) + rng.random(len(turns)) / 2) / 10
    return fired(at_s, np.full(len(at_s), 30), 40_000)


def on_and_off(rng, seconds):
    """Batches of 20 for 50 ms in the mean, then nothing for 150."""
    on_s, off_s = rng.exponential(0.05, 10 * seconds), rng.exponential(0.15, 10 * seconds)
    starts_s = np.cumsum(on_s + off_s) - on_s - off_s
    counts = rng.poisson(800 * on_s)
    at_s = np.repeat(starts_s, counts) + rng.random(counts.sum()) * np.repeat(on_s, counts)
    at_s = at_s[at_s < seconds]
    return fired(at_s, np.full(len(at_s), 20), 40_000)


TRAFFIC = [singles, batches, busy_batches, groups, periodic, on_and_off]


@pytest.mark.slow
@pytest.mark.parametrize("traffic", TRAFFIC, ids=[one.__name__ for one in TRAFFIC])
@pytest.mark.parametrize(("late", "wrong"), [(0.0105, Verdict.BELOW), (0.008, Verdict.ABOVE)])
def test_a_wrong_verdict_is_as_rare_as_stated_under_repeated_looks(traffic, late, wrong):
    # A long run gives the target for which the true fraction of late messages is known.
    target_ns = int(np.quantile(traffic(np.random.default_rng(1), 600)[1], 1 - late))
    rng = np.random.default_rng(2)
    verdicts = [decide(*traffic(rng, 8), target_ns, SECOND, 0.95).verdict for _ in range(120)]
    assert verdicts.count(wrong) <= 0.05 * 120


@pytest.mark.slow
def test_stalls_of_the_machine_that_are_well_within_what_is_allowed_do_not_keep_it_from_deciding():
    # Bursts 5 ms apart, one in 250 of them late for reasons of its own.
    rng = np.random.default_rng(6)
    below = 0
    for _ in range(20):
        arrival_ns = np.repeat(np.arange(6_000) * 5 * MS, 50)
        latency_ns = np.repeat(np.where(rng.random(6_000) < 0.004, 2 * MS, MS // 2), 50)
        below += decide(arrival_ns, latency_ns, MS, SECOND, 0.95).verdict is Verdict.BELOW
    assert below >= 18


def rare_and_large(rng):
    """One burst in fifty has a hundred messages, all late in one of two: a good percent more than a percent is late."""
    count = np.where(rng.random(1_500) < 0.02, 100, 1)
    late = np.where((count > 1) & (rng.random(1_500) < 0.0205), count, 0)
    at = np.arange(1_500) * 3
    return Intervals(at=at, count=count, late=late, latency_ns=count * MS)


@pytest.mark.slow
def test_a_wrong_verdict_is_as_rare_as_stated_where_few_bursts_bring_most_messages():
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(300):
        whole, test = rare_and_large(rng), SequentialTest(99, 0.99)
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
    target_ns = int(np.quantile(batches(np.random.default_rng(1), 300)[1], quantile))
    rng = np.random.default_rng(3)
    for _ in range(10):
        assert decide(*batches(rng, 20), target_ns, SECOND // 4).verdict is right


@pytest.mark.parametrize(("confidence", "blocks"), [(0.95, 350), (0.99, 510)])
def test_without_a_late_message_the_blocks_it_takes_are_known(confidence, blocks):
    for bursts, verdict in ((blocks - 20, Verdict.UNDECIDED), (blocks + 25, Verdict.BELOW)):
        arrival_ns = np.repeat(np.arange(bursts) * 5 * MS, 50)
        latency_ns = np.full(len(arrival_ns), MS // 2)
        assert decide(arrival_ns, latency_ns, MS, 50 * MS, confidence).verdict is verdict


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


def test_where_bursts_come_as_often_as_intervals_each_is_an_observation():
    # Every 1.1 ms, so that nine in ten follow each other at once.
    test = decide(np.repeat(np.arange(300) * 1_100_000, 50), np.zeros(15_000, dtype=np.int64), MS, 100 * MS)
    assert test.verdict is Verdict.UNDECIDED
    assert test.blocks == test.bursts == 300


def across_edges(rng):
    """Bursts that follow each other at once, each half in one interval and half in the next, both halves as slow."""
    bursts = 700
    latency_ns = np.repeat(rng.integers(MS // 4, MS // 2, bursts), 2)
    latency_ns[rng.integers(0, bursts, 10) * 2 + [[0], [1]]] = 2 * MS
    count = np.full(2 * bursts, 25)
    return Intervals(
        at=np.arange(2 * bursts), count=count, late=count * (latency_ns > MS), latency_ns=count * latency_ns
    )


def test_two_halves_of_a_burst_are_no_more_evidence_than_one_where_the_one_tells_of_the_other():
    for seed in range(20):
        test = SequentialTest(99)
        test.add(across_edges(np.random.default_rng(seed)))
        assert test.blocks <= 700


@pytest.mark.parametrize(("bursts", "verdict"), [(550, Verdict.UNDECIDED), (750, Verdict.BELOW)])
def test_longer_blocks_which_are_chosen_by_what_came_have_a_small_part_of_the_error(bursts, verdict):
    # Each tells of the next, none is late: blocks of one would take 350 of them, those of two have a twentieth of 5 %.
    latency_ns = np.repeat(np.random.default_rng(8).integers(MS // 4, MS // 2, bursts), 2)
    test = SequentialTest(99)
    test.add(
        Intervals(
            at=np.arange(2 * bursts) * 3,
            count=np.full(2 * bursts, 25),
            late=np.zeros(2 * bursts, dtype=np.int64),
            latency_ns=25 * latency_ns,
        )
    )
    assert (test.bursts, test.blocks) == (2 * bursts, bursts)
    assert test.verdict is verdict


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
    arrival_ns, latency_ns = singles(np.random.default_rng(4), 20)
    assert decide(arrival_ns, latency_ns, int(latency_ns.max()) + 1, SECOND, 0.999_999).blocks < 4_000


def drifting(rng, blocks):
    """About 0, slowly: neighbours are alike."""
    steps = rng.normal(size=blocks)
    return np.convolve(steps, np.ones(20) / np.sqrt(20), mode="same")


def bursts_of_50(late, latency_ns):
    at = np.arange(len(late)) * 2
    return Intervals(at=at, count=np.full(len(late), 50), late=late, latency_ns=50 * latency_ns.astype(np.int64))


def test_that_bursts_drift_by_less_than_a_hundredth_of_their_latency_costs_nothing():
    drift, none = drifting(np.random.default_rng(5), 400), np.zeros(400, dtype=np.int64)
    verdicts = {}
    for part in (0.003, 0.1):
        test = SequentialTest(99)
        test.add(bursts_of_50(none, MS * (1 + part * drift)))
        verdicts[part] = test.blocks == 400, test.verdict
    assert verdicts == {0.003: (True, Verdict.BELOW), 0.1: (False, Verdict.UNDECIDED)}


def test_blocks_grow_where_how_much_is_late_is_slow_to_change_though_latency_is_not():
    rng = np.random.default_rng(5)
    drift = drifting(rng, 1_600)
    test = SequentialTest(99, 0.999_999)
    test.add(bursts_of_50(rng.binomial(50, 0.01 * np.exp(drift - 0.5)), MS * (1 + 0.003 * drift)))
    assert test.blocks < 800


@pytest.mark.parametrize(("meetings", "verdict"), [(2, Verdict.BELOW), (3, Verdict.UNDECIDED)])
def test_where_bursts_have_met_once_or_twice_it_takes_no_longer(meetings, verdict):
    count = np.full(400, 50)
    count[20 : 20 + meetings] *= 2
    test = SequentialTest(99)
    test.add(Intervals(at=np.arange(400) * 3, count=count, late=np.zeros(400, dtype=np.int64), latency_ns=count * MS))
    assert test.verdict is verdict


def test_a_block_that_is_larger_than_all_others_costs_no_more_than_there_is_though_all_of_it_is_late():
    count, late = np.full(1_400, 50), np.zeros(1_400, dtype=np.int64)
    count[100] = late[100] = 50_000
    verdicts = []
    for last in (700, 1_400):
        test = SequentialTest(99)
        at, some = np.arange(last) * 3, slice(0, last)
        test.add(Intervals(at=at, count=count[some], late=late[some], latency_ns=count[some] * MS))
        verdicts.append(test.verdict)
    assert verdicts == [Verdict.UNDECIDED, Verdict.UNDECIDED]


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
    assert (test.verdict, test.count, test.late, test.blocks) == (Verdict.UNDECIDED, 0, 0, 0)


@pytest.mark.parametrize("confidence", [0.5, 1, 0, float("nan")])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(BadInput, match="confidence"):
        SequentialTest(99, confidence)
