"""The reference bucket against Eq. 2 of the paper's appendix A in fractions, its laws, and the conformance checker."""

import random
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO, Bucket, conforms_actual, conforms_due

MICRO = 1_000_000
MS = 1_000_000  # ns
SECOND = 10**9  # ns

rates = st.integers(1, 10**12) | st.sampled_from([3 * MICRO, 1_000 * MICRO, 11_000 * MICRO])
bursts = st.integers(MICRO, 30 * MICRO)
gaps = st.lists(st.one_of(st.just(0), st.integers(0, 10), st.integers(0, 10**7), st.integers(0, 10**10)), max_size=60)


def instants(gaps_ns, start_ns=0):
    times, at = [], start_ns
    for gap in gaps_ns:
        at += gap
        times.append(at)
    return times


def due_by_eq_2(arrivals, rate_micro, burst_micro):
    """d(a_i) = max(0, U(a_i-) + 1 - b), in units of 1/r and in fractions; then rounded up to a nanosecond."""
    rate = Fraction(rate_micro, MICRO * SECOND)  # tokens a nanosecond
    burst = Fraction(burst_micro, MICRO)
    work, last, due = Fraction(0), 0, []
    for at in arrivals:
        work = max(Fraction(0), work - rate * (at - last))
        due.append(at + ceil(max(Fraction(0), work + 1 - burst) / rate))
        work, last = work + 1, at
    return due


@given(gaps, rates, bursts)
def test_due_instants_are_those_of_the_papers_equation_2(gaps_ns, rate, burst):
    arrivals = instants(gaps_ns)
    bucket = Bucket(rate, burst, 0)
    assert [bucket.take(1, at) for at in arrivals] == due_by_eq_2(arrivals, rate, burst)


@given(gaps, rates, bursts, st.booleans())
def test_what_a_bucket_lets_go_conforms_and_one_release_more_would_not(gaps_ns, rate, burst, full):
    bucket = Bucket(rate, burst, 0, full)
    due = [bucket.take(1, at) for at in instants(gaps_ns)]
    assert conforms_due(due, rate, burst) is None
    assert conforms_due(due + [instants(gaps_ns, 5)[-1] if gaps_ns else 0] * (burst // MICRO + 2), rate, burst)


def test_release_is_in_order_of_asking_whatever_the_cost():
    bucket = Bucket(1_000 * MICRO, 4 * MICRO, 0)
    assert [bucket.take(cost, 0) for cost in (3, 2, 1, 4)] == [0, MS, 2 * MS, 6 * MS]


def test_a_stamp_older_than_the_last_decision_counts_as_its_instant():
    bucket = Bucket(1_000 * MICRO, 1 * MICRO, 0)
    assert bucket.take(1, 5 * MS) == 5 * MS
    assert bucket.take(1, 2 * MS) == 6 * MS


def test_nothing_drifts_where_a_token_takes_no_whole_number_of_nanoseconds():
    # 3 msg/s, always short of tokens: message n is due at n / 3 s, rounded up, for ever.
    bucket = Bucket(3 * MICRO, 1 * MICRO, 0, full=False)
    due = [bucket.take(1, 0) for _ in range(3_000)]
    assert due == [-(-n * SECOND // 3) for n in range(1, 3_001)]


def test_fill_is_what_is_there_and_asking_for_it_changes_nothing():
    bucket = Bucket(1_000 * MICRO, 2 * MICRO, 0)
    assert [bucket.take(1, 0) for _ in range(3)] == [0, 0, MS]
    assert bucket.fill_units(10 * MS) == 2 * TOKEN
    assert bucket.fill_units(MS // 4) == TOKEN // 4
    assert bucket.unfinished_work(MS // 4) == 3 * TOKEN - TOKEN // 4
    assert bucket.unfinished_work(10 * MS) == 0
    assert bucket.take(1, MS // 4) == 2 * MS


def test_a_debit_may_leave_less_than_nothing_and_puts_off_what_waits():
    bucket = Bucket(1_000 * MICRO, 2 * MICRO, 0)
    bucket.debit(5, 0)
    assert bucket.fill_units(0) == -3 * TOKEN
    assert bucket.take(1, 0) == 4 * MS
    bucket.debit(1, 0)
    assert bucket.set(1_000 * MICRO, 2 * MICRO, 0) == [5 * MS]


def test_a_shrink_clamps_the_fill_and_a_growth_mints_nothing():
    bucket = Bucket(1_000 * MICRO, 10 * MICRO, 0)
    bucket.set(1_000 * MICRO, 3 * MICRO, 0)
    bucket.set(1_000 * MICRO, 10 * MICRO, 0)
    assert bucket.fill_units(0) == 3 * TOKEN


def test_a_change_retimes_only_what_still_waits():
    bucket = Bucket(1_000 * MICRO, 1 * MICRO, 0)
    assert [bucket.take(1, 0) for _ in range(4)] == [0, MS, 2 * MS, 3 * MS]
    assert bucket.set(500 * MICRO, 1 * MICRO, MS) == [3 * MS, 5 * MS]


def test_what_waits_under_a_share_of_nothing_gets_an_instant_when_a_share_comes_back():
    bucket = Bucket(1_000 * MICRO, 1 * MICRO, 0, full=False)
    assert bucket.take(1, 0) == MS
    assert bucket.set(0, 0, MS // 2) == [None]
    assert bucket.take(1, MS) is None
    assert bucket.set(1_000 * MICRO, 1 * MICRO, 10 * MS) == [11 * MS, 12 * MS]


def test_more_than_the_bucket_holds_never_passes_and_holds_up_what_comes_behind():
    bucket = Bucket(1_000 * MICRO, 3 * MICRO, 0)
    assert bucket.take(4, 0) is None
    assert bucket.take(1, 0) is None
    # The three tokens that are there are no more after an hour, and growth adds none: the fourth takes 1 ms.
    assert bucket.fill_units(3_600 * SECOND) == 3 * TOKEN
    hour = 3_600 * SECOND
    assert bucket.set(1_000 * MICRO, 4 * MICRO, hour) == [hour + MS, hour + 2 * MS]


share = st.one_of(st.just((0, 0)), st.tuples(rates, bursts))


@given(st.lists(st.tuples(st.integers(0, 10**8), st.none() | share), max_size=40), st.tuples(rates, bursts))
def test_fill_never_leaves_zero_to_burst_however_shares_change(steps, first):
    bucket, burst, at = Bucket(*first, 0), first[1], 0
    for gap, new in steps:
        at += gap
        if new is None:
            bucket.take(1, at)
        else:
            bucket.set(*new, at)
            burst = new[1]
        assert 0 <= bucket.fill_units(at) <= burst * UNITS_PER_MICRO


@given(st.integers(0, 2**32), st.integers(2, 5))
def test_tokens_that_move_between_brokers_never_exceed_the_whole(seed, brokers):
    # Shares move as the lease rule says: one shrinks, and only then another grows, by what was given up.
    rng = random.Random(seed)
    shares = [(1_000 * MICRO, 5 * MICRO) for _ in range(brokers)]
    buckets = [Bucket(*one, 0) for one in shares]
    waiting = [[] for _ in range(brokers)]  # due instants given and not yet passed
    released, at = [], 0
    for _ in range(150):
        at += rng.choice([0, 0, 100_000, 3_000_000])
        index = rng.randrange(brokers)
        if rng.random() < 0.9:
            waiting[index].append(buckets[index].take(1, at))
            continue
        giver, taker = rng.sample(range(brokers), 2)
        moved = (rng.randrange(shares[giver][0] // 2 + 1), rng.randrange(max(1, shares[giver][1] - MICRO + 1)))
        for who, sign in ((giver, -1), (taker, 1)):
            shares[who] = (shares[who][0] + sign * moved[0], shares[who][1] + sign * moved[1])
            released += [due for due in waiting[who] if due <= at]
            waiting[who] = buckets[who].set(*shares[who], at)
    released += [due for still in waiting for due in still]
    assert len(released) > 100
    assert conforms_due(released, brokers * 1_000 * MICRO, brokers * 5 * MICRO) is None


def worst_by_trying_all(log, rate, burst, lateness):
    """The law, interval by interval: what exceeds b + r * (dt + J), in units; instants are whole ns, rounded up."""
    log = sorted(log)
    return max(
        (j - i + 1) * TOKEN - burst * UNITS_PER_MICRO - rate * (log[j] - log[i] + lateness) - max(0, rate - 1)
        for i in range(len(log))
        for j in range(i, len(log))
    )


@given(st.lists(st.integers(-1_000, 10**7), min_size=1, max_size=25), rates, bursts, st.integers(0, 10**6))
def test_the_checker_judges_every_interval(log, rate, burst, lateness):
    excess = worst_by_trying_all(log, rate, burst, lateness)
    found = conforms_actual(log, rate, burst, lateness)
    assert (found is not None) == (excess > 0)
    if found:
        inside = [at for at in log if found.from_ns <= at <= found.to_ns]
        assert found.released == len(inside)
        assert found.released - found.allowed == pytest.approx(excess / TOKEN, rel=1e-6, abs=1e-6)


def test_the_checker_counts_all_of_a_batch_and_both_ends():
    assert conforms_due([7] * 5, MICRO, 5 * MICRO) is None
    violation = conforms_due([7] * 6, MICRO, 5 * MICRO)
    assert violation is not None
    assert (violation.released, violation.from_ns, violation.to_ns) == (6, 7, 7)
    assert str(violation) == "6 messages within 0 ns from 7, allowed 5"


def test_logs_of_several_brokers_are_judged_by_the_whole_envelope():
    one, other = [0, MS, 2 * MS], [0, MS, 2 * MS]
    assert conforms_due([*one, *other], 2_000 * MICRO, 2 * MICRO) is None
    assert conforms_due([*one, *other], 1_900 * MICRO, 2 * MICRO) is not None


def test_late_hand_overs_conform_only_with_their_lateness():
    due = [n * MS for n in range(10)]
    late = [*due[:5], *[8 * MS] * 3, *due[8:]]  # three messages held up by as much as 3 ms
    assert conforms_due(due, 1_000 * MICRO, 1 * MICRO) is None
    assert conforms_actual(late, 1_000 * MICRO, 1 * MICRO, 0) is not None
    assert conforms_actual(late, 1_000 * MICRO, 1 * MICRO, 3 * MS) is None
