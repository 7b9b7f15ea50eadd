"""The page of a store that goes away and contracts that change: each claim can fail."""

from __future__ import annotations

from bench.experiments.limits import limit_service
from bench.experiments.limits.limit_service import (
    AGAIN_AND_AGAIN,
    BEFORE,
    KILLED,
    ONCE,
    RELOAD,
    STOPPED,
    STORE,
    checks,
    middle,
)

AWAY = {"before_ms": 0.4, "first_ms": 181.0, "then_ms": 0.2, "back_s": 1.1, "above": 0}
GOOD = [
    {"part": STORE, "how": STOPPED, **AWAY},
    {"part": STORE, "how": KILLED, **AWAY},
    {"part": RELOAD, "how": BEFORE, **AWAY, "then_ms": 4.0},
    {"part": RELOAD, "how": ONCE, **AWAY, "then_ms": 4.5},
    {"part": RELOAD, "how": AGAIN_AND_AGAIN, **AWAY, "then_ms": 5.9},
]


def test_each_claim_can_fail() -> None:
    assert all(check.kept for check in checks(GOOD))
    for place, name, value in (
        (0, "first_ms", 201.0),
        (1, "then_ms", 1.1),
        (1, "above", 4),
        (0, "back_s", 2.1),
        (3, "then_ms", 6.1),
        (4, "then_ms", 6.1),
    ):
        rows = [{**one, name: value} if number == place else one for number, one in enumerate(GOOD)]
        assert sum(not check.kept for check in checks(rows)) == 1, name


def test_rows_are_the_medians_of_rounds() -> None:
    rounds = [{**GOOD[2], "then_ms": value, "above": None} for value in (4.0, 90.0, 5.0)]
    assert middle(rounds) == [{**GOOD[2], "then_ms": 5.0, "above": None}]


def test_the_column_names_are_those_of_rows() -> None:
    assert set(limit_service.EXPERIMENT.columns.values()) == set(GOOD[0])
