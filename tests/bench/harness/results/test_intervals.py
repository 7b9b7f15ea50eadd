"""Medians and how sure they are: by counting alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.harness.results.intervals import Interval, coverage, interval


def test_ten_values_have_the_second_and_the_ninth_around_their_median() -> None:
    assert interval([10, 1, 9, 2, 8, 3, 7, 4, 6, 5]) == Interval(5.5, 2, 9)
    assert coverage(10) == pytest.approx(1 - 2 * 11 / 1024)


def test_fewer_than_six_values_give_all_of_them_and_say_how_little_that_is() -> None:
    assert interval([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0)
    assert coverage(3) == 0.75
    assert coverage(5) == 0.9375
    assert coverage(6) == pytest.approx(0.96875)
    assert interval([7.0]) == Interval(7.0, 7.0, 7.0)
    assert coverage(1) == 0.0


@pytest.mark.parametrize("count", range(6, 60))
def test_no_shorter_interval_would_hold_the_median_as_often(count: int) -> None:
    found = interval(list(range(count)))
    assert found.low == count - 1 - found.high
    assert coverage(count) >= 0.95
    shorter = int(found.low) + 1
    at_least = 1 - 2 * sum(math.comb(count, k) for k in range(shorter + 1)) / 2**count
    assert at_least < 0.95


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(1).exponential(size=(4_000, 10))
    found = [interval(values) for values in drawn.tolist()]
    held = sum(one.low <= np.log(2) <= one.high for one in found) / len(found)
    assert held == pytest.approx(coverage(10), abs=0.01)
