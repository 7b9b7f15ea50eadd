from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from bench.harness.results.batch_means import BATCHES, COVERED, controlled_mean_of, mean_of


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


def test_chance_that_a_control_shares_is_taken_off() -> None:
    """Delays of a mean of 1 ms, and the same with 10 us more in one of ten messages."""
    rng = np.random.default_rng(3)
    controls = [rng.exponential(1e6, 2_000).astype(np.int64) for _ in range(3)]
    runs = [control + 10_000 * (rng.random(2_000) < 0.1) for control in controls]
    found = controlled_mean_of(runs, controls, expected=1e6)
    assert found.value == pytest.approx(1_001_000, abs=200)
    assert 0 < found.half < 0.01 * mean_of(runs).half
    assert found.seen == 1.0


def test_a_control_of_another_length_is_cut_into_as_many_batches() -> None:
    control = np.arange(1_003, dtype=np.int64)
    assert controlled_mean_of([control[3:]], [control], expected=0.0).value == pytest.approx(1.5)


def test_of_one_value_nothing_is_known_but_itself() -> None:
    found = mean_of([np.array([3], dtype=np.int64)])
    assert (found.value, found.half) == (3.0, float("inf"))
