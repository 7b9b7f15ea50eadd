"""What ``srtm bench gdrl --real`` makes of its runs."""

from __future__ import annotations

import pytest

from bench.experiments.gdrl.real import RealRun, claim, markdown, reached_really
from srtm.topics.adaptation import Indicator


def run(rounds: int | None) -> RealRun:
    return RealRun(0, (1_000, 40, 0, 1, 2, 3), rounds, 0.004, 2.87)


@pytest.mark.parametrize(("rounds", "reached"), [((20, 35), True), ((20, 36), False), ((20, None), False)])
def test_every_run_must_agree_within_35_rounds(rounds: tuple[int | None, ...], reached: bool) -> None:
    assert reached_really([run(one) for one in rounds]) is reached


def test_the_table_names_demand_and_rounds_and_says_so_where_they_did_not_agree() -> None:
    assert "| 1 | 1,000, 40, 0, 1, 2, 3 | 287% | 28 | 0.40% |" in markdown([run(28)])
    assert "| more |" in markdown([run(None)])
    assert "median 24, worst 28 of 2 runs" in claim([run(20), run(28)], "fill")
    assert "not always of 1 runs" in claim([run(None)], "fill")


@pytest.mark.parametrize("indicator", ["fill", "slack"])
def test_the_claim_names_the_indicator_that_brokers_went_by(indicator: Indicator) -> None:
    assert f"indicator `{indicator}`" in claim([run(20)], indicator)
