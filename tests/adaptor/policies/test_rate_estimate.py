"""The rate of arrivals: of the last five seconds, or since a change that was told."""

from __future__ import annotations

import random

import pytest

from adaptor.observations import Change
from adaptor.policies.rate_estimate import RateEstimate


def filled(*counts: int, dispersion: float = 1.0) -> RateEstimate:
    estimate = RateEstimate(dispersion)
    for count in counts:
        estimate.add(count)
    return estimate


def test_the_rate_is_that_of_the_last_five_seconds() -> None:
    assert filled().rate == 0.0
    assert filled(*[10] * 50, *[20] * 25).rate == pytest.approx(150.0)
    assert filled(*[10] * 50, *[20] * 50).rate == pytest.approx(200.0)


def test_the_last_rate_is_that_of_the_last_second_or_since_a_change() -> None:
    estimate = filled(*[10] * 50, *[20] * 10)
    assert estimate.last_rate == pytest.approx(200.0)
    estimate.begin_anew(Change(arrivals=18, span_s=0.02, mixed=1, known=0))
    assert estimate.last_rate == pytest.approx(900.0)


def test_a_change_that_was_told_counts_at_once_and_the_bins_that_began_before_it_do_not() -> None:
    estimate = filled(*[10] * 50)
    estimate.begin_anew(Change(arrivals=18, span_s=0.02, mixed=1, known=0))
    assert estimate.rate == pytest.approx(900.0)
    assert not estimate.add(55)
    assert estimate.rate == pytest.approx(900.0)
    for _ in range(5):
        assert estimate.add(80)
    assert estimate.rate == pytest.approx(800.0)


def test_a_change_that_is_told_late_leaves_the_bins_since_then_what_is_known() -> None:
    estimate = filled(*[10] * 50, 90, 92)
    assert estimate.begin_anew(Change(arrivals=18, span_s=0.02, mixed=0, known=2)) == 2
    assert estimate.rate == pytest.approx(910.0)


def test_the_dispersion_is_learned_from_neighbouring_bins() -> None:
    dice = random.Random(1)
    in_batches = filled(*[10 * sum(dice.random() < 0.1 for _ in range(50)) for _ in range(2_000)])
    assert 7.0 < in_batches.dispersion < 11.0
    assert filled(*[10] * 2_000, dispersion=4.0).dispersion < 0.3


def test_a_leap_of_the_rate_says_little_about_its_noise() -> None:
    assert filled(*[10] * 10, *[1_000] * 10).dispersion < 3.0
