"""When a rate counts as another than the one that was told."""

from __future__ import annotations

import numpy as np
import pytest

from broker.history.drift import Drift


def seconds(rate: float, count: int, seed: int = 1) -> list[list[int]]:
    """Poisson counts of ``count`` seconds, ``rate`` messages a bin."""
    return np.random.default_rng(seed).poisson(rate, (count, 10)).tolist()


def alarms(drift: Drift, told: list[list[int]]) -> int:
    return sum(drift.note(second) for second in told)


@pytest.mark.parametrize("rate", [0.5, 5.0, 500.0])
def test_hours_of_traffic_at_one_rate_are_no_drift(rate: float) -> None:
    assert alarms(Drift(), seconds(rate, 2 * 3600)) <= 1


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_another_rate_is_found_within_a_window(factor: float) -> None:
    drift = Drift()
    assert alarms(drift, seconds(20.0, 10)) == 0
    assert alarms(drift, seconds(20.0 * factor, 5, seed=2)) == 1


def test_what_is_clear_but_makes_no_difference_is_no_drift() -> None:
    drift = Drift()
    assert alarms(drift, seconds(1_000_000.0, 10)) == 0
    assert alarms(drift, seconds(1_040_000.0, 50, seed=2)) == 0


def test_traffic_in_large_batches_is_not_taken_for_drift() -> None:
    batches = [[100 * count for count in second] for second in seconds(0.5, 3600)]
    assert alarms(Drift(), batches) <= 2
