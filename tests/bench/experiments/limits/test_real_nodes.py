"""The page of real nodes: each claim can fail. The runs themselves are the system tests' (tests/system)."""

from __future__ import annotations

from bench.experiments.limits import real_nodes
from bench.experiments.limits.real_nodes import CASES, FRAME_S, checks, delay_s, row
from bench.limit_cluster.merged import Decision, Judged

GOOD = Judged(requests=100, allowed=10, refused=90, refused_centrally=90, excess=0.5, unexplained=-1.0)


def test_each_claim_can_fail() -> None:
    rows = [row(case, GOOD) for case in CASES]
    assert all(check.kept for check in checks(rows))
    for name, value in {"unexplained": 0.5, "refused_percent": 89.0, "above": 2.0}.items():
        assert sum(not check.kept for check in checks([{**one, name: value} for one in rows])) == 1, name


def test_news_is_as_late_as_the_longest_request_at_both_its_ends() -> None:
    found = [Decision("a", 1.0, 1.001, True), Decision("b", 1.0, 1.02, True)]  # ``judge`` counts one of them
    assert delay_s(CASES[1], found) == FRAME_S + 0.05 + (1.02 - 1.0)


def test_the_column_names_are_those_of_rows() -> None:
    assert set(real_nodes.EXPERIMENT.columns.values()) == set(row(CASES[0], GOOD))
