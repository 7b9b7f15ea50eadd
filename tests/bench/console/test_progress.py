"""A bench of minutes says what it is at."""

from __future__ import annotations

from bench.console.progress import counted


def test_each_run_is_told_before_it_is_made() -> None:
    told: list[str] = []
    made = [(run, told[-1]) for run in counted(["a", "b"], told.append)]
    assert made == [("a", "run 1 of 2"), ("b", "run 2 of 2")]


def test_many_runs_are_all_made_and_told_in_at_most_fifty_lines() -> None:
    for count in (51, 400, 1_999):
        told: list[str] = []
        assert list(counted(range(count), told.append)) == list(range(count))
        assert 20 <= len(told) <= 50
        assert told[0] == f"run 1 of {count:,}"


def test_no_run_is_no_line() -> None:
    told: list[str] = []
    assert (list(counted([], told.append)), told) == ([], [])
