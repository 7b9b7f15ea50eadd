"""``tests.faults.envelope``: it passes what buckets let go, fails every forged trace, and agrees with the law."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from srtm.token_bucket.bucket import Bucket, conforms_due
from srtm.units import to_micro
from tests.faults.envelope import Column, Envelope, excess, worst_interval

SECOND = 10**9
ENVELOPE = Envelope(rate=300.0, burst=30.0)


def column(instants_ns: list[int]) -> Column:
    return np.array(instants_ns, dtype=np.int64)


def released_by_bucket(arrivals_ns: list[int], envelope: Envelope) -> Column:
    bucket = Bucket(to_micro(envelope.rate, "rate"), to_micro(envelope.burst, "burst"), 0)
    due = [bucket.take(1, at_ns) for at_ns in sorted(arrivals_ns)]
    return column([at_ns for at_ns in due if at_ns is not None])


def share(part: float) -> Envelope:
    return Envelope(ENVELOPE.rate * part, ENVELOPE.burst * part)


def flood(seconds: int) -> list[int]:
    """Twice the rate, in pairs."""
    return [at_ns for at_ns in range(SECOND, (1 + seconds) * SECOND, SECOND // 300) for _ in range(2)]


def three_brokers() -> list[Column]:
    return [released_by_bucket(flood(10), share(part)) for part in (0.5, 0.3, 0.2)]


def test_shares_that_add_up_to_the_envelope_keep_it() -> None:
    assert excess(three_brokers(), ENVELOPE) is None


def test_the_whole_burst_and_the_rate_are_used_up() -> None:
    worst = worst_interval([released_by_bucket(flood(10), ENVELOPE)], ENVELOPE)
    assert worst is not None
    assert worst.allowed - worst.released < 1


def test_nothing_let_go_is_within_every_envelope() -> None:
    assert worst_interval([], ENVELOPE) is None
    assert worst_interval([column([])], Envelope(0, 0)) is None


@pytest.mark.parametrize("broker", [0, 1, 2])
def test_a_share_that_lives_twice_is_found(broker: int) -> None:
    traces = three_brokers()
    forged = traces[broker] + 1_000  # the same broker's copy, a microsecond later
    found = excess([*traces, forged], ENVELOPE)
    assert found is not None
    assert found.released > found.allowed


def test_brokers_that_conform_alone_are_found_to_exceed_together() -> None:
    two = [released_by_bucket(flood(10), share(0.6)) for _ in range(2)]
    assert [excess([trace], share(0.6)) for trace in two] == [None, None]
    assert excess(two, ENVELOPE) is not None


def test_one_forged_message_beside_a_full_burst_is_found() -> None:
    trace = released_by_bucket([SECOND] * 31, Envelope(rate=1.0, burst=30.0))
    assert excess([trace], Envelope(rate=1.0, burst=30.0)) is None
    forged = column([int(trace[0])])
    found = excess([trace, forged], Envelope(rate=1.0, burst=30.0))
    assert found is not None
    assert (found.from_ns, found.to_ns) == (SECOND, SECOND)  # all at once: the last one, a second later, is lawful
    assert found.released == 31


def test_a_bucket_that_began_anew_with_a_full_burst_is_found() -> None:
    before, after = flood(2), flood(4)[-1200:]
    anew = released_by_bucket([at_ns - after[0] for at_ns in after], ENVELOPE) + after[0]
    assert excess([released_by_bucket(before, ENVELOPE)], ENVELOPE) is None
    assert excess([released_by_bucket(before, ENVELOPE), anew], ENVELOPE) is not None


def test_the_interval_is_told_in_words() -> None:
    found = excess([column([SECOND] * 40)], ENVELOPE)
    assert str(found) == "40 messages within 0.000000 s from 1000000000 ns, allowed 30.000"


instants = st.lists(st.integers(0, 20), max_size=12).map(lambda ticks: [tick * SECOND // 10 for tick in ticks])
envelopes = st.builds(Envelope, st.integers(0, 20), st.integers(0, 6))


def brute_force_holds(due_ns: list[int], envelope: Envelope) -> bool:
    """The law, word by word, in exact numbers."""
    rate = Fraction(envelope.rate) / SECOND
    return all(
        sum(from_ns <= at_ns <= to_ns for at_ns in due_ns) <= Fraction(envelope.burst) + rate * (to_ns - from_ns + 1)
        for from_ns, to_ns in combinations_with_replacement(sorted(due_ns), 2)
    )


@given(instants, instants, envelopes)
def test_it_agrees_with_the_law_word_by_word(one: list[int], other: list[int], envelope: Envelope) -> None:
    found = excess([column(one), column(other)], envelope)
    assert (found is None) == brute_force_holds(one + other, envelope)


@given(st.lists(st.integers(0, 10**10), max_size=200), st.integers(1, 300_000_000), st.integers(1, 9_000_000))
def test_it_agrees_with_the_products_checker(due_ns: list[int], rate_micro: int, burst_micro: int) -> None:
    """But where rounding to a nanosecond decides."""
    envelope = Envelope(rate_micro / 1e6, burst_micro / 1e6)
    worst = worst_interval([column(due_ns)], envelope)
    assume(worst is None or abs(worst.allowed - worst.released) > 1e-5)
    assert (excess([column(due_ns)], envelope) is None) == (conforms_due(due_ns, rate_micro, burst_micro) is None)
