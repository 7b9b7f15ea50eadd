"""The climb to the largest rate that keeps a promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.harness.cluster_runs.rate_search import WITHIN, Climb


def climbed(limit: float, first: float = 1000.0) -> tuple[Climb, list[float]]:
    climb, tried = Climb(first, 200_000.0), []
    while (rate := climb.next) is not None:
        tried.append(rate)
        if rate <= limit:
            climb.keep()
        else:
            climb.fail()
    return climb, tried


@given(st.floats(1.0, 1e6), st.floats(10.0, 10_000.0))
def test_it_finds_the_limit_within_a_twentieth_in_few_steps(limit, first):
    climb, tried = climbed(limit, first)
    assert len(tried) <= 30
    assert climb.kept <= limit
    if limit >= 200_000:
        assert climb.kept == 200_000
    elif limit >= 4:
        assert limit <= climb.kept * (1 + WITHIN) * 1.0001


@given(st.floats(1.0, 1e6))
def test_it_never_tries_what_was_broken_nor_anything_above_it(limit):
    _, tried = climbed(limit)
    broken = float("inf")
    for rate in tried:
        assert rate < broken
        broken = rate if rate > limit else broken


def test_a_broker_that_keeps_nothing_ends_the_climb():
    climb, tried = climbed(0.0)
    assert (climb.kept, tried[0]) == (0.0, 1000.0)
    assert tried[-1] == pytest.approx(1000 / 4 ** (len(tried) - 1))
    assert len(tried) <= 6
