from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.policies.burst_split import bursts
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket
from srtm.units import MICRO

RATE, BURST = 11_000 * MICRO, 25 * MICRO


def fitting(loads: list[float]) -> list[float]:
    spread = [math.sqrt(load) for load in loads]
    return [load + (11_000 - sum(loads)) * part / sum(spread) for load, part in zip(loads, spread, strict=True)]


def of(seen: list[float], expected: list[float]) -> list[float]:
    traffic = [[Traffic(rate=load) for load in loads] for loads in (seen, expected)]
    return bursts(BURST, fitting(expected), *traffic, percentile=99.0)


loads = st.lists(st.floats(10, 2_600), min_size=2, max_size=4)


@given(loads, st.floats(0, 1))
def test_bursts_sum_to_the_whole_and_hold_a_token_each(expected: list[float], part: float) -> None:
    found = of([part * load for load in expected], expected)
    assert sum(found) == pytest.approx(25)
    assert all(one >= 1 - 1e-9 for one in found)


def test_where_nothing_would_wait_they_are_those_of_what_is_expected_whoever_sends_a_little() -> None:
    expected = [2_000.0, 8_000.0]
    assert of([20.0, 0.0], expected) == of([0.0, 20.0], expected) == pytest.approx([1 + 23 / 3, 1 + 46 / 3])


def test_very_unequal_brokers_get_the_least_worst_delay_as_what_it_costs_in_sum_is_little() -> None:
    loads = [1_000.0, 9_000.0]
    levelled = [burst / MICRO for _, burst in fitted_bucket(RATE, BURST, [Traffic(rate=load) for load in loads])]
    assert of(loads, loads) == pytest.approx(levelled, abs=0.01)


def test_the_busiest_of_four_full_brokers_keeps_more_than_the_least_worst_delay_would_leave_it() -> None:
    loads = [4_330.0, 2_421.0, 1_804.0, 1_445.0]
    levelled = [burst / MICRO for _, burst in fitted_bucket(RATE, BURST, [Traffic(rate=load) for load in loads])]
    assert levelled[0] + 2 < of(loads, loads)[0] < 8.2
