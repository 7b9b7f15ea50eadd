from __future__ import annotations

import pytest

from bench.experiments.figures.laboratory import checks
from bench.experiments.lab.figure import Row

AGREES: Row = {
    "single": 57_000.0,
    "single_halved": 127_000.0,
    "batches": 111_000.0,
    "kept": 87_000.0,
    "one_broker_ms": 0.95,
    "two_brokers_ms": 1.7,
}


def test_a_broker_that_does_all_that_the_text_says_agrees_with_it() -> None:
    assert all(check.kept for check in checks(AGREES))


@pytest.mark.parametrize(
    "other",
    [
        {"single": 61_000.0},
        {"single_halved": 59_000.0},
        {"batches": 79_000.0},
        {"kept": 74_000.0},
        {"kept": 101_000.0},
        {"one_broker_ms": 1.07},
        {"two_brokers_ms": 0.9},
    ],
    ids=str,
)
def test_each_sentence_of_the_text_can_be_broken(other: Row) -> None:
    assert sum(not check.kept for check in checks({**AGREES, **other})) == 1
