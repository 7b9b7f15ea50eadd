"""The day that is made: its size, that it wanders, and that a seed makes it again."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.sensors import read_detectors
from bench.simulation.demand_day import CELLS, HOURS, arrivals, demand

PEAK = 1_000.0


def test_the_days_largest_demand_is_the_peak_and_every_broker_has_some_at_all_times() -> None:
    rates = demand(read_detectors(), 4, HOURS, PEAK, seed=1)
    assert rates.shape == (4, HOURS * CELLS)
    assert rates.sum(axis=0).max() == pytest.approx(PEAK)
    assert rates.min() > 0


def test_the_morning_belongs_to_the_east_and_the_evening_to_the_west() -> None:
    rates = demand(read_detectors(), 4, HOURS, PEAK, seed=1)
    morning, evening = rates[:, 7 * CELLS + 30], rates[:, 17 * CELLS + 30]
    assert morning[-1] > 1.2 * morning[0]
    assert evening[0] > 1.2 * evening[-1]
    assert rates.sum(axis=0)[3 * CELLS] < PEAK / 4


def test_fewer_hours_are_the_beginning_of_the_same_day() -> None:
    whole = demand(read_detectors(), 3, HOURS, PEAK, seed=2)
    assert np.array_equal(demand(read_detectors(), 3, 9, PEAK, seed=2), whole[:, : 9 * CELLS])


def test_arrivals_follow_the_rates_and_the_seed() -> None:
    rates = np.concatenate([np.full((1, CELLS), 6_000.0), np.full((1, CELLS), 0.0)])
    came = arrivals(rates, 2.0, seed=3)
    assert len(came[0]) == pytest.approx(12_000, rel=0.05)
    assert len(came[1]) == 0
    assert (np.diff(came[0]) >= 0).all()
    assert came[0][-1] < 2 * 10**9
    assert np.array_equal(came[0], arrivals(rates, 2.0, seed=3)[0])
    assert not np.array_equal(came[0][:10], arrivals(rates, 2.0, seed=4)[0][:10])
