"""The page of replicated limits, on short sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.experiments.lab.figure import Effort
from bench.experiments.limits import replicated
from bench.limiting.request_sets import SETS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figure():
    """The counter stands in for the queue, and two shorter sets for A and C: those take minutes."""
    counter = replicated.DESIGNS[0].make
    designs = [replace(one, make=counter) if one.name.startswith("queue") else one for one in replicated.DESIGNS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicated, "DESIGNS", designs)
        patch.setattr(replicated, "SETS", {**SETS, "A": SETS["B barely even"], "C": SETS["B not limited"]})
        return replicated.figure(Effort(repetitions=1))


def test_every_design_is_measured_on_every_set(figure):
    assert {(one["set"], one["design"]) for one in figure.rows} == {
        (name, design.name) for name in SETS for design in replicated.DESIGNS
    }


def test_replicated_reaches_what_is_asked_of_it(figure):
    missed = [check.what for check in figure.checks if not check.kept and not check.what.startswith("thesis")]
    assert missed == []


def test_the_thesis_s_numbers_stand_beside_its_designs(figure):
    told = {(one["set"], one["design"]) for one in figure.rows if one["thesis"]}
    assert told == set(replicated.THESIS)


def test_more_above_fewer_refusals_and_more_bytes_are_checks_that_fail(figure):
    names = {"above": 1.0, "refused_percent": 50.0, "payload_percent": 99.0, "memory_percent": 99.0}
    for name, bad in names.items():
        rows = [{**one, name: bad} if one["design"] == replicated.OURS else one for one in figure.rows]
        assert sum(not check.kept for check in replicated.checks(rows)) > sum(not one.kept for one in figure.checks)


def test_only_sets_that_take_long_are_run_less_often_than_asked_for():
    assert set(replicated.RUNS) == {"A", "C"}
