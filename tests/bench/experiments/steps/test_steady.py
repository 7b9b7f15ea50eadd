from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from bench.experiments.steps.steady import (
    FIRST_PART,
    SETTLING_S,
    SteadyRun,
    judged,
    markdown,
    steady_plan,
    too_late,
    watched,
)
from bench.experiments.steps.traffic import topic_document
from bench.harness.cluster_runs.recovery import SECOND_NS
from bench.harness.cluster_runs.trace import Trace

FITTED = SteadyRun(mode="fitted", pair=1, worst_p99_ms=2.0, messages=600_000, late_p999_ms=0.1, reasons=[])
PROPORTIONAL = replace(FITTED, mode="proportional", worst_p99_ms=14.0)


def pairs(*p99s: tuple[float, float]) -> list[SteadyRun]:
    return [
        replace(run, pair=number, worst_p99_ms=p99)
        for number, both in enumerate(p99s, 1)
        for run, p99 in zip((FITTED, PROPORTIONAL), both, strict=True)
    ]


def test_a_tenth_of_the_traffic_comes_to_the_first_broker_as_declared() -> None:
    plan = steady_plan("cars", ["127.0.0.1:1", "127.0.0.1:2"], 60.0, 1001)
    assert Counter(plan.publishers.target) == {0: 100, 1: 900}
    assert (plan.warmup_s, plan.duration_s) == (SETTLING_S, 60.0)
    assert topic_document("cars", FIRST_PART, 1, "fitted")["publishers"][0]["rates"] == [1_000.0, 9_000.0]


def test_the_worse_broker_of_the_last_seconds_counts() -> None:
    arrival = np.arange(0, 20 * SECOND_NS, SECOND_NS // 100)
    fine = Trace(["a"], np.zeros_like(arrival), arrival, arrival, arrival, arrival)
    due = arrival + np.where(arrival < 10 * SECOND_NS, 900_000_000, 3_000_000)
    late = Trace(["a"], np.zeros_like(arrival), arrival, due, due, due)
    assert watched([fine, late], 9.0) == (3.0, 2 * 900)
    waiting = Trace(["a"], np.zeros_like(arrival), arrival, np.zeros_like(arrival), due, due)
    assert watched([fine, waiting], 9.0)[0] > 1e6


def test_it_is_reached_where_the_medians_differ_by_a_factor_of_five() -> None:
    assert judged(pairs((2.0, 14.0), (9.0, 14.0), (2.2, 14.0))).reached
    short = judged(pairs((3.0, 14.0), (3.0, 14.0)))
    assert not short.reached
    assert "fell short: fitted's part of proportional's worst p99 0.214" in short.line


def test_a_pair_of_which_one_run_does_not_count_is_left_out_and_says_why() -> None:
    bad = replace(PROPORTIONAL, pair=2, worst_p99_ms=90.0, reasons=["the generator was late"])
    runs = [FITTED, PROPORTIONAL, replace(FITTED, pair=2), bad]
    assert "1 pairs" in judged(runs).checks[0].measured
    assert "proportional: the generator was late" in markdown(runs)
    nothing = judged(runs[2:])
    assert not nothing.valid
    assert "no verdict: no pair counts" in nothing.line


def test_every_pair_has_a_row_with_both_and_their_ratio() -> None:
    assert "| 1 | 2 | 14 | 0.14 | 0.1 / 0.1 | counts |" in markdown(pairs((2.0, 14.0)))


def test_a_thousandth_that_was_late_by_more_than_the_promise_spoils_a_run() -> None:
    assert too_late(5.0) == []
    assert too_late(5.1) == ["the generator's p99.9 lateness 5.1 ms, over 5 ms"]
