"""The study of splits: how cases are drawn and judged, and twenty of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.experiments.figures.split_study import CaseResult, cause_of, checks, part_within, result_of
from bench.simulation.split_cases import COURSES, ENDS_S, STARTS, split_case, worst_p99_ns
from srtm.topics.adaptation import Mode


def test_cases_are_drawn_from_their_seed_alone_and_cover_what_they_are_to_cover() -> None:
    cases = [split_case(seed) for seed in range(100)]
    assert [one.name for one in cases[:5]] == [split_case(seed).name for seed in range(5)]
    assert {one.brokers for one in cases} == {1, 2, 3, 4, 5, 6}
    assert {one.start for one in cases} == set(STARTS)
    assert {one.course for one in cases} == set(COURSES)
    assert all(0.5 <= one.part <= 0.95 and 1 <= one.group <= 30 for one in cases)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_case_has_its_load_and_shares_that_sum_to_the_envelope(seed: int) -> None:
    case = split_case(seed)
    count = sum(len(one) for one in case.arrivals_ns)
    begun_s = float((ENDS_S - case.begins_s).mean())
    assert count == pytest.approx(case.load * begun_s, rel=0.15)
    assert sum(rate for rate, _ in case.shares) == case.envelope.rate_micro
    assert sum(burst for _, burst in case.shares) == case.envelope.burst_micro
    assert sum(one.rate for one in case.declared) == pytest.approx(case.load)


def test_the_worst_broker_counts_unless_hardly_anything_comes_there() -> None:
    busy = (np.arange(1_000) * 1_000_000, np.arange(1_000) * 1_000_000 + 2_000_000)
    rare = (np.arange(5) * 1_000_000, np.arange(5) * 1_000_000 + 900_000_000)
    assert worst_p99_ns([busy, rare], [(0.0, 2.0)]) == 2_000_000
    assert worst_p99_ns([busy, rare, rare, (rare[0].repeat(10), rare[1].repeat(10))], [(0.0, 2.0)]) == 900_000_000
    assert worst_p99_ns([busy], [(5.0, 6.0)]) == 0.0


def judged(fitted_ms: float, slo_ms: float = 10.0) -> CaseResult:
    found: dict[Mode, float] = {"static": 500.0, "proportional": 20.0, "gdrl": 4.0, "fitted": fitted_ms}
    return CaseResult(seed=1, name="a fleet", slo_ms=slo_ms, settled_ms=found, shift_ms=found)


def test_a_case_counts_by_the_best_of_the_others_and_delays_below_a_tenth_of_the_promise_are_alike() -> None:
    assert judged(8.0).ratio == 2.0
    assert judged(8.0).best == "gdrl"
    assert judged(3.0, slo_ms=100.0).ratio == 1.0
    assert judged(2.0).ratio_of("gdrl") == 2.0
    assert [one.kept for one in checks([judged(4.0)] * 9 + [judged(7.0)])] == [True, True, True]
    assert [one.kept for one in checks([judged(4.0)] * 9 + [judged(9.0)])] == [True, False, True]


@pytest.mark.slow
def test_on_twenty_fleets_the_default_is_far_behind_the_best_of_the_others_on_three_at_most() -> None:
    ratios = [result_of(seed).ratio for seed in range(100, 120)]
    assert part_within(ratios, 2.0) >= 0.85
    assert part_within(ratios, 1.1) >= 0.6


@pytest.mark.slow
def test_a_fleet_that_is_drawn_anew_is_the_same_fleet_and_a_case_has_a_cause() -> None:
    case = split_case(100)
    anew = replace(case, draw=2)
    assert (anew.home == case.home).all()
    assert [len(one) for one in anew.arrivals_ns] != [len(one) for one in case.arrivals_ns]
    assert cause_of(1).startswith("chance")  # it is not far behind at all
