"""The engine's detector of changes: quiet while nothing changes, quick when something does. Counts are drawn with
seeds."""

import numpy as np
import pytest

from srtm._native import ChangeDetector


def counts(rate, batch, slots, seed):
    """Messages in each slot: batches come as a Poisson process."""
    return (np.random.default_rng(seed).poisson(rate / batch, slots) * batch).tolist()


def detector_after(rate, batch, slots=1_500, seed=1):
    detector = ChangeDetector()
    assert not any(detector.note(count) for count in counts(rate, batch, slots, seed))
    return detector


def slots_until_said(detector, rate, batch, seed):
    """And what was said: messages a slot."""
    for slots, count in enumerate(counts(rate, batch, 5_000, seed), 1):
        if (moved := detector.note(count)) is not None:
            return slots, moved[0] / moved[1]
    raise AssertionError("nothing was said")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("rate", "batch"),
    [(0, 1), (0.02, 1), (0.2, 1), (2, 1), (20, 1), (200, 1), (0.2, 10), (2, 10), (20, 10), (200, 10)],
)
def test_a_rate_that_stays_is_no_change(rate, batch, seed):
    detector_after(rate, batch, slots=50_000, seed=seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("before", "after", "batch", "at_most_slots"),
    [
        (100, 180, 1, 2),
        (100, 20, 1, 2),
        (20, 180, 1, 2),
        (180, 20, 1, 2),
        (20, 180, 10, 5),
        (180, 20, 10, 6),
        (100, 120, 1, 25),
        (0, 2, 1, 25),
        (2, 0, 1, 20),
    ],
)
def test_a_step_is_said_within_slots(before, after, batch, at_most_slots, seed):
    assert slots_until_said(detector_after(before, batch), after, batch, seed)[0] <= at_most_slots


@pytest.mark.parametrize("before", [20, 180])
def test_what_is_said_is_the_rate_after_the_step_though_it_fell_into_the_middle_of_a_slot(before):
    after = 200 - before
    for seed in range(20):
        detector = detector_after(before, 1)
        assert detector.note(100) is None
        _, rate = slots_until_said(detector, after, 1, seed)
        assert rate == pytest.approx(after, rel=1.0 if after < before else 0.25)


def test_a_step_is_said_once():
    detector = detector_after(100, 1)
    assert sum(detector.note(count) is not None for count in counts(180, 1, 5_000, seed=2)) == 1


def test_what_a_pause_held_back_is_no_change():
    detector = detector_after(100, 1)
    assert not any(detector.note(count) for count in [0, 200, *counts(100, 1, 100, seed=2)])


def test_it_says_nothing_while_it_learns():
    detector = ChangeDetector()
    assert not any(detector.note(count) for count in [0, 900, 3, 5_000, 0] * 10)
    assert detector.is_settled


def test_the_next_step_is_said_too():
    detector = detector_after(100, 1)
    slots_until_said(detector, 180, 1, seed=2)
    assert not any(detector.note(count) for count in counts(180, 1, 500, seed=3))
    assert slots_until_said(detector, 100, 1, seed=4)[0] <= 3
