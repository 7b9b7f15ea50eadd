"""Replay in columns equals the reference bucket to the nanosecond, in chunks of any size; the DRL penalty."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO, Bucket
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.replay import NEVER_NS, Server, access_delays, due_instants, penalty

MICRO = 1_000_000
MS = 1_000_000  # ns

rates = st.integers(1, 10**15) | st.sampled_from([3 * MICRO, 1_000 * MICRO, 11_000 * MICRO])
bursts = st.integers(MICRO, 40 * MICRO)
gaps = st.one_of(
    st.just(0), st.integers(-50, 50), st.integers(0, 10**7), st.integers(0, 10**12)
)  # < 0: stamps out of order


def arrivals(gaps_ns):
    return np.cumsum(np.array([10**15, *gaps_ns], dtype=np.int64))


def by_reference(arrival_ns, rate, burst, debt):
    bucket = Bucket(rate, burst, int(arrival_ns[0]))
    bucket.debit(debt, int(arrival_ns[0]))
    return [bucket.take(1, at) for at in arrival_ns.tolist()]


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(gaps, max_size=80), rates, bursts, st.integers(0, 60))
def test_due_instants_equal_the_reference_buckets(gaps_ns, rate, burst, debt):
    arrival_ns = arrivals(gaps_ns)
    fill = burst * UNITS_PER_MICRO - debt * TOKEN
    assert due_instants(arrival_ns, rate, burst, fill).tolist() == by_reference(arrival_ns, rate, burst, debt)


@given(st.lists(gaps, min_size=1, max_size=80), rates, st.integers(1, 9))
def test_chunks_carry_the_work_on_exactly(gaps_ns, rate, chunk):
    arrival_ns = np.maximum.accumulate(arrivals(gaps_ns))
    whole = Server(rate, 0).found(arrival_ns)
    pieces = Server(rate, 0)
    pieces._chunk = chunk  # so short a one needs a rate that no topic has
    found = pieces.found(arrival_ns)
    assert [column.tolist() for column in found] == [column.tolist() for column in whole]


@pytest.mark.slow
def test_an_overload_of_a_million_messages_is_exact():
    rng = np.random.default_rng(1)
    arrival_ns = np.cumsum(rng.exponential(1e5, 1_000_000)).astype(np.int64)
    due = due_instants(arrival_ns, 5_000_000_003, 25 * MICRO)
    bucket = Bucket(5_000_000_003, 25 * MICRO, int(arrival_ns[0]))
    assert due.tolist() == [bucket.take(1, at) for at in arrival_ns.tolist()]


def test_a_share_of_nothing_never_lets_go():
    arrival_ns = np.array([5, 6], dtype=np.int64)
    assert access_delays(arrival_ns, 0, 0).tolist() == [NEVER_NS, NEVER_NS]
    assert access_delays(arrival_ns, 0, MICRO).tolist() == [0, NEVER_NS]
    assert access_delays(arrival_ns, MICRO, MICRO // 2).tolist() == [NEVER_NS, NEVER_NS]
    assert access_delays(arrival_ns[:0], MICRO, MICRO).tolist() == []


def test_a_delay_beyond_what_a_clock_can_hold_is_no_number():
    arrival_ns = np.zeros(10_000, dtype=np.int64)
    with pytest.raises(OverflowError, match="73 years"):
        access_delays(arrival_ns, 1, MICRO)  # one message in eleven days


def test_the_penalty_is_the_splits_delay_less_the_one_buckets():
    one, other = np.array([0, 0], dtype=np.int64), np.array([0], dtype=np.int64)
    found = penalty([one, other], [(500 * MICRO, MICRO), (500 * MICRO, MICRO)], 1_000 * MICRO, 2 * MICRO)
    assert (found.split.sum_ns, found.one.sum_ns, found.sum_ns) == (2 * MS, 1 * MS, 1 * MS)
    assert found.mean_ns == pytest.approx(MS / 3)
    assert (found.split.p99_ns, found.p99_ns) == (2 * MS, MS)


def test_a_penalty_without_end_is_refused():
    with pytest.raises(BadInput, match="share"):
        penalty([np.array([0, 1], dtype=np.int64)], [(0, 0)], MICRO, MICRO)


def test_nothing_arrived_is_no_penalty():
    empty = np.zeros(0, dtype=np.int64)
    assert penalty([empty, empty], [(0, 0), (MICRO, MICRO)], MICRO, MICRO).sum_ns == 0


@pytest.mark.slow
def test_poisson_traffic_split_over_brokers_waits_as_the_theory_says():
    # 10,000 Poisson msg/s, r = 11,000, b = 25 (issue: mean p99 of 60 s runs, k = 2..6: 2.3, 4.6, 7.0, 9.3, 11.5 ms).
    rng = np.random.default_rng(7)
    arrival_ns = (np.sort(rng.random(600_000)) * 60e9).astype(np.int64)
    for brokers, expected_ms in ((2, 2.3), (4, 7.0), (6, 11.5)):
        target = rng.integers(0, brokers, len(arrival_ns))
        shares = split_bucket(11_000 * MICRO, 25 * MICRO, [1.0] * brokers)
        found = penalty([arrival_ns[target == at] for at in range(brokers)], shares, 11_000 * MICRO, 25 * MICRO)
        assert found.split.p99_ns / 1e6 == pytest.approx(expected_ms, rel=0.2)
        assert found.one.p99_ns < 0.3 * MS
        assert found.sum_ns > 0
