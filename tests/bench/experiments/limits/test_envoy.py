"""The page of Envoy's rate limit service: each claim can fail."""

from __future__ import annotations

import pytest

from bench.experiments.limits import envoy
from bench.experiments.limits.envoy import ALWAYS_OPEN, CALLS_A_SECOND, RATES, checks, middle
from bench.limit_cluster.envoy_service import Measured

ROUND = [
    Measured(rate=rate, per_second=rate or 3_000, p50_ms=0.5, p99_ms=5.0, cpu_us=90.0, wrong=0)._asdict()
    for rate in (ALWAYS_OPEN, *RATES)
]


@pytest.mark.parametrize(
    ("rate", "name", "value"),
    [(ALWAYS_OPEN, "per_second", 2_999), (CALLS_A_SECOND, "p99_ms", 5.1), (RATES[0], "wrong", 1)],
)
def test_each_claim_can_fail(rate: int, name: str, value: float) -> None:
    assert all(check.kept for check in checks(ROUND))
    rows = [{**one, name: value} if one["rate"] == rate else one for one in ROUND]
    assert sum(not check.kept for check in checks(rows)) == 1


def test_rows_are_the_medians_of_rounds_but_nothing_wrong_is_lost() -> None:
    rounds = [{**ROUND[0], "p99_ms": value, "wrong": wrong} for value, wrong in ((4.0, 0), (90.0, 7), (5.0, 0))]
    (found,) = middle(rounds)
    assert (found["p99_ms"], found["wrong"]) == (5.0, 7)


def test_the_column_names_are_those_of_rows() -> None:
    assert set(envoy.EXPERIMENT.columns.values()) == set(middle(ROUND)[0]) - {"rate"}
