"""The article's algorithms, on calls that can be followed by hand."""

from __future__ import annotations

from random import Random

import pytest

from bench.limiting.algorithms import (
    ALGORITHMS,
    LIMIT,
    TRAFFIC,
    LeakyBucket,
    Log,
    TokenBucket,
    Windows,
    exact_counts,
    most_in_a_window,
)
from bench.limiting.request_sets import SECOND


def at_s(*instants: float) -> list[int]:
    return [round(one * SECOND) for one in instants]


def passed(limiter, instants: list[int]) -> int:
    return sum(limiter.released_ns(at_ns) is not None for at_ns in instants)


def test_the_exact_count_is_of_the_last_60_s():
    assert exact_counts(at_s(0, 30, 59.9, 60, 119)) == [1, 2, 3, 3, 3]
    assert most_in_a_window(at_s(119, 0, 30, 59.9, 60)) == 3
    assert most_in_a_window([]) == 0


def test_the_example_of_the_article():
    """A call at 00:01:43 counts the calendar minute, and 17/60 of the one before."""
    windows = Windows(1, weighted=True)
    for at_ns in at_s(*[10] * 60, *[70] * 4):
        windows.counted(at_ns)
    assert windows.counted(103 * SECOND) == pytest.approx(5 + 60 * 17 / 60)


def test_a_fixed_window_forgets_at_the_minutes_edge():
    calls = at_s(*[59.9] * 150, *[60.1] * 150)
    assert passed(Windows(1, weighted=False), calls) == 2 * LIMIT
    assert passed(Windows(1, weighted=True), calls) == LIMIT
    assert passed(Log(), calls) == LIMIT


def test_a_bucket_lets_its_burst_and_what_refills_through():
    calls = at_s(*[0] * 150, *[30] * 150)
    assert passed(TokenBucket(LIMIT, LIMIT), calls) == LIMIT + LIMIT // 2
    assert passed(TokenBucket(LIMIT // 2, LIMIT // 2), calls) == LIMIT // 2 + LIMIT // 4


def test_a_leaky_bucket_lets_calls_go_on_one_after_the_other():
    leaky = LeakyBucket(2)
    assert [leaky.released_ns(0) for _ in range(4)] == [*at_s(0, 0.6, 1.2), None]
    assert passed(LeakyBucket(0), at_s(0, 0.5, 0.6, 1.1, 1.2)) == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one.name)
def test_nothing_is_refused_that_stays_below_half_the_limit_evenly(algorithm):
    assert passed(algorithm.make(), at_s(*[1.25 * number for number in range(400)])) == 400


@pytest.mark.parametrize("name", list(TRAFFIC))
def test_calls_are_in_order_and_reproducible(name):
    calls = TRAFFIC[name](Random(1))
    assert calls == sorted(calls) == TRAFFIC[name](Random(1))
    assert len(calls) > 4_000
