"""The Wilson score interval: known values, and that it covers as often as it says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.token_bucket.wilson import fewest_successes, wilson_interval


def test_known_values():
    assert wilson_interval(97, 100) == pytest.approx((0.9155, 0.9897), abs=1e-4)
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_it_holds_the_part_and_mirrors(counts):
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    assert wilson_interval(successes, trials, 0.99).low <= low


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.9, 0.95])
def test_it_covers_the_probability_in_about_95_of_100_cases(probability):
    trials = 300
    chances = [
        math.comb(trials, kept) * probability**kept * (1 - probability) ** (trials - kept) for kept in range(trials + 1)
    ]
    covered = sum(
        chance
        for kept, chance in enumerate(chances)
        if wilson_interval(kept, trials).low <= probability <= wilson_interval(kept, trials).high
    )
    assert 0.93 < covered < 0.97


def test_the_fewest_successes_are_just_enough():
    assert fewest_successes(300, 0.95) == 293
    assert wilson_interval(292, 300).low < 0.95 <= wilson_interval(293, 300).low
    assert fewest_successes(72, 0.95) is None


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="trials"):
        wilson_interval(*counts)
