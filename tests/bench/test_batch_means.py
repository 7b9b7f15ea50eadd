from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from bench.batch_means import BATCHES, COVERED, mean_of


def test_the_mean_is_of_all_values_of_all_runs() -> None:
    runs = [np.arange(100, dtype=np.int64), np.full(300, 7, dtype=np.int64)]
    assert mean_of(runs).value == pytest.approx((99 * 50 + 2_100) / 400)


def test_values_that_are_all_the_same_leave_no_doubt() -> None:
    assert mean_of([np.full(1_000, 5, dtype=np.int64)]).half == 0.0


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says() -> None:
    """Of a random walk that is pulled back (100 values long), cut into batches of 1,000."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        walk = lfilter([1.0], [1.0, -0.99], rng.normal(0, 1_000, BATCHES * 1_000))
        found = mean_of([walk.astype(np.int64)])
        held += abs(found.value) <= found.half
    assert COVERED - 0.07 <= held / 200 <= 1.0


def test_more_runs_make_the_interval_narrower() -> None:
    rng = np.random.default_rng(2)
    runs = [rng.exponential(1e6, 2_000).astype(np.int64) for _ in range(4)]
    assert mean_of(runs).half < 0.75 * mean_of(runs[:1]).half


def test_batches_in_which_nothing_came_are_told() -> None:
    rare = np.zeros(BATCHES * 10, dtype=np.int64)
    rare[:10] = 1
    assert mean_of([rare]).seen == 1 / BATCHES


def test_of_one_value_nothing_is_known_but_itself() -> None:
    found = mean_of([np.array([3], dtype=np.int64)])
    assert (found.value, found.half) == (3.0, float("inf"))
