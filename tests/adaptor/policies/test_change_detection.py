from __future__ import annotations

import math
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.policies.change_detection import RateEstimate, clearest_change


def normal(dice: random.Random, mean: float, dispersion: float) -> int:
    return max(0, round(dice.gauss(mean, (dispersion * mean) ** 0.5)))


def sigmas(counts: list[int], window: int, dispersion: float) -> float:
    """By how many standard deviations the mean of the last ``window`` counts is off that of the others, written out."""
    recent, before = counts[-window:], counts[:-window]
    apart = abs(sum(recent) / len(recent) - sum(before) / len(before))
    mean = max(sum(counts) / len(counts), 1.0)
    return apart / math.sqrt(dispersion * mean * (1 / len(recent) + 1 / len(before)))


few = st.lists(st.integers(0, 3), max_size=60)
many = st.lists(st.integers(0, 100_000), max_size=40)


@given(few | many, few | many, st.floats(0.1, 50))
def test_the_window_that_is_found_is_the_one_that_is_most_sigmas_off_if_any_is_by_five(
    before: list[int], after: list[int], dispersion: float
) -> None:
    counts = [*before, *after]
    off = {w: sigmas(counts, w, dispersion) for w in (1, 2, 3, 5, 8, 13, 21, 34, 50) if w < len(counts)}
    found = clearest_change(deque(counts), sum(counts), dispersion)
    if found:
        assert off[found] >= max(max(off.values()), 5.0) * (1 - 1e-9)
    else:
        assert max(off.values(), default=0.0) <= 5.0 * (1 + 1e-9)


@given(st.integers(0, 100_000), st.sampled_from([0.1, 3.0, 500.0]), st.integers(1, 250), st.integers(0, 200))
def test_bins_without_a_change_make_the_same_estimate_tested_one_by_one_or_taken_as_they_are(
    seed: int, mean: float, known: int, more: int
) -> None:
    dice, tested, taken = random.Random(seed), RateEstimate(), RateEstimate()
    counts = [normal(dice, mean, 1) for _ in range(known + more)]
    if any(tested.add(count) for count in counts):  # by chance
        return
    for count in counts[:known]:
        taken.add(count)
    assert not taken.settle(counts[known:])
    assert (taken.rate, taken.bins) == (tested.rate, tested.bins)
    assert taken.rate == pytest.approx(10 * sum(counts[-100:]) / len(counts[-100:]))
    assert (taken.deviation, taken.dispersion) == (tested.deviation, tested.dispersion)


def test_steady_bins_of_another_rate_than_is_known_are_a_change() -> None:
    estimate = RateEstimate()
    for _ in range(60):
        estimate.add(20)
    assert not estimate.settle([21] * 10)
    assert estimate.settle([40] * 100)
    assert (estimate.rate, estimate.bins) == (400, 100)


def test_of_steady_bins_those_that_began_before_a_change_that_was_told_do_not_count() -> None:
    estimate = RateEstimate()
    estimate.begin_anew(180, 0.02, mixed=2)
    assert not estimate.settle([100, 500, 880, 900])
    assert (estimate.rate, estimate.bins) == (8_900, 2)
    assert not estimate.is_mixed()


def test_a_leap_of_four_fifths_shows_in_its_first_bin() -> None:
    dice, estimate = random.Random(1), RateEstimate()
    assert not any(estimate.add(normal(dice, 500, 1)) for _ in range(100))
    assert estimate.add(normal(dice, 900, 1))
    assert estimate.rate > 8_000


def test_the_bin_in_which_the_change_fell_is_forgotten_as_soon_as_there_are_better_ones() -> None:
    estimate = RateEstimate()
    for count in [500] * 50 + [700] + [720] * 3:
        estimate.add(count)
    assert estimate.rate == 7_200


def test_of_a_change_that_bins_show_what_was_told_before_is_forgotten() -> None:
    for finds in (RateEstimate.add, lambda estimate, count: estimate.settle([count])):
        estimate = RateEstimate()
        estimate.begin_anew(60, 0.6, 0)
        estimate.add(10)
        assert finds(estimate, 100)
        assert estimate.rate == pytest.approx(1_000.0)


def test_what_the_rate_was_is_known_for_ten_bins_behind_a_change_that_bins_show_and_that_nobody_told() -> None:
    estimate = RateEstimate()
    assert not any(estimate.add(100) for _ in range(20))
    assert estimate.former == estimate.rate
    assert estimate.add(300)
    assert estimate.former == pytest.approx(1_000.0)
    for _ in range(10):
        estimate.add(300)
    assert estimate.former == pytest.approx(1_000.0)
    estimate.add(300)
    assert estimate.former == estimate.rate
    assert estimate.add(100)
    estimate.begin_anew(20, 0.02, 0)
    assert estimate.former == estimate.rate


def test_a_drift_shows_after_a_while() -> None:
    dice, estimate = random.Random(2), RateEstimate()
    seen = [estimate.add(normal(dice, 500 + i / 2, 1)) for i in range(200)]
    assert any(seen)
    assert abs(estimate.rate - 6_000) < 400


@given(st.integers(0, 100_000), st.sampled_from([1.0, 10.0]), st.floats(5, 2_000))
def test_stationary_traffic_raises_no_alarm(seed: int, dispersion: float, mean: float) -> None:
    dice, estimate = random.Random(seed), RateEstimate(dispersion)
    alarms = sum(estimate.add(normal(dice, mean, dispersion)) for _ in range(300))
    assert alarms <= 1


def test_the_dispersion_is_learned_from_neighbouring_bins() -> None:
    dice, estimate = random.Random(3), RateEstimate()
    for _ in range(600):
        estimate.add(normal(dice, 1_000, 10))
    assert 5 < estimate.dispersion < 20


def test_a_silent_broker_has_no_rate_and_its_first_messages_are_a_change() -> None:
    estimate = RateEstimate()
    assert not any(estimate.add(0) for _ in range(20))
    assert estimate.rate == 0
    assert estimate.add(100)


def test_a_change_that_was_told_counts_at_once_and_the_bins_that_began_before_it_do_not() -> None:
    estimate = RateEstimate()
    for _ in range(50):
        estimate.add(100)
    estimate.begin_anew(180, 0.02, mixed=1)
    assert estimate.rate == pytest.approx(9_000)
    assert estimate.deviation == pytest.approx(math.sqrt(estimate.dispersion * 180) / 0.02)
    assert [estimate.is_mixed() for _ in range(3)] == [True, False, False]
    estimate.add(880)
    assert (estimate.rate, estimate.bins) == (pytest.approx(8_800), 1)


def test_a_change_that_is_told_late_leaves_the_bins_since_then_what_is_known() -> None:
    estimate = RateEstimate()
    for count in [100] * 50 + [110] * 4:
        estimate.add(count)
    estimate.begin_anew(30, 0.02, mixed=0, known=4)
    assert (estimate.rate, estimate.bins) == (pytest.approx(1_100), 4)


@pytest.mark.parametrize(("span_s", "known"), [(0.02, 1), (0.5, 4)])
def test_a_change_of_which_bins_say_less_than_its_own_messages_is_known_by_these(span_s: float, known: int) -> None:
    estimate = RateEstimate()
    for count in [100] * 54:
        estimate.add(count)
    estimate.begin_anew(30, span_s, mixed=0, known=known)
    assert estimate.rate == pytest.approx(30 / span_s)
