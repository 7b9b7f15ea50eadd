"""The page of real brokers: each claim can fail, and three brokers hold one contract while they are disturbed."""

from __future__ import annotations

import pytest

from bench.experiments.limits import real_brokers
from bench.experiments.limits.real_brokers import CASES, Case, Run, checks, row, run
from bench.limit_cluster.merged import Judged

GOOD = Run(
    judged=Judged(requests=100, allowed=10, refused=90, refused_centrally=90, excess=0.5, unexplained=-1.0), delay_s=0.2
)


def test_each_claim_can_fail() -> None:
    rows = [row(case, GOOD) for case in CASES]
    assert all(check.kept for check in checks(rows))
    for name, value in {"unexplained": 0.5, "refused_percent": 89.0}.items():
        assert sum(not check.kept for check in checks([{**one, name: value} for one in rows])) == 1, name


def test_the_column_names_are_those_of_rows() -> None:
    assert set(real_brokers.EXPERIMENT.columns.values()) == set(row(CASES[0], GOOD))


@pytest.mark.slow
def test_three_brokers_that_are_killed_and_cut_off_hold_one_contract() -> None:
    found = run(Case(wire_ms=50, disturbed=True), names="abc", seconds=12.0)
    assert found.judged.unexplained <= 0, found
    assert found.judged.refused_percent >= 70, "half the brokers of the page, and a busy machine asks less often"
    assert found.judged.allowed > real_brokers.BURST, found
