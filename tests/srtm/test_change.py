"""The detector of changes: quiet while nothing changes, quick when something does. Counts are drawn with seeds."""

import numpy as np
import pytest

from srtm.change import ChangeDetector


def counts(rate, batch, bins, seed):
    """Messages in each bin: batches come as a Poisson process."""
    return (np.random.default_rng(seed).poisson(rate / batch, bins) * batch).tolist()


def detector_after(rate, batch, bins=300, seed=1):
    detector = ChangeDetector()
    assert not any(detector.note(count) for count in counts(rate, batch, bins, seed))
    return detector


def bins_until_said(detector, rate, batch, seed):
    return next(bins for bins, count in enumerate(counts(rate, batch, 1_000, seed), 1) if detector.note(count))


@pytest.mark.parametrize(("rate", "batch"), [(0, 1), (0.05, 1), (1, 1), (10, 1), (500, 1), (10, 10), (100, 10)])
def test_a_rate_that_stays_is_no_change(rate, batch):
    detector_after(rate, batch, bins=20_000)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("before", "after", "batch", "at_most_bins"),
    [
        (500, 900, 1, 1),
        (500, 100, 1, 1),
        (500, 900, 10, 5),
        (500, 100, 10, 5),
        (500, 600, 1, 10),
        (0, 10, 1, 10),
        (10, 0, 1, 10),
    ],
)
def test_a_step_is_said_within_bins(before, after, batch, at_most_bins, seed):
    assert bins_until_said(detector_after(before, batch), after, batch, seed) <= at_most_bins


def test_a_step_is_said_once():
    detector = detector_after(500, 1)
    assert sum(detector.note(count) for count in counts(900, 1, 1_000, seed=2)) == 1


def test_it_says_nothing_while_it_learns():
    detector = ChangeDetector()
    assert not any(detector.note(count) for count in (0, 900, 3, 5_000, 0, 0, 0, 0, 1))
    assert not detector.is_settled
    detector.note(0)
    assert detector.is_settled


def test_the_next_step_is_said_too():
    detector = detector_after(500, 1)
    bins_until_said(detector, 900, 1, seed=2)
    assert not any(detector.note(count) for count in counts(900, 1, 100, seed=3))
    assert bins_until_said(detector, 500, 1, seed=4) <= 2
