"""What ``srtm bench calibrate`` fits on, and what it says of the runs that it leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.experiments.calibrate import Basis, CalibrateOptions, Case, judge, page_of, results_of
from bench.harness.cluster_runs.trace import Trace
from bench.simulation.brokers import Machine, PathDelay, Paths, serve
from bench.simulation.calibration import fit
from bench.simulation.recorded import Recorded, recorded
from bench.simulation.traffic import Fleet
from srtm.errors import BadInput

SEED = 1
_WAY = PathDelay(at_once=(40_000,), waited=(40_000,))
LATE = "the generator was late"
LABORATORY = [
    Case(fleet=Fleet(count=400, rate=4.0, batch=batch), burst=burst, lab_us=20.0) for batch, burst in ((1, 3), (3, 9))
]
BARE = [
    Case(fleet=Fleet(count=200, batch=batch), burst=burst, lab_us=0)
    for batch, burst in ((1, 3), (2, 12), (5, 12), (10, 12))
]
SPOILT = Case(fleet=Fleet(count=200), burst=15, lab_us=0)


def run_of(case: Case, cpu_us: float, reasons: list[str]) -> Recorded:
    """Three seconds."""
    layout, rng = case.layout(SEED), np.random.default_rng(SEED)
    arrival_ns = case.fleet.arrivals(layout.placement, 1, 3.0, rng)[0]
    machine = Machine(message_ns=10_000 + 1_000 * case.lab_us, paths=Paths(single=_WAY, batched=_WAY))
    delays = serve(arrival_ns, layout.shares[0], machine, batch=case.fleet.batch, publishers=case.fleet.count, rng=rng)
    due_ns = arrival_ns + delays.access_ns
    trace = Trace([], np.zeros_like(due_ns), arrival_ns, due_ns, due_ns, due_ns + delays.processing_ns)
    return recorded(layout, [trace], warm_up_s=1.0, cpu_us=cpu_us, reasons=reasons)


@pytest.fixture(scope="module")
def good() -> list[tuple[Case, Recorded]]:
    return [(case, run_of(case, 10.0, [])) for case in (*LABORATORY, *BARE)]


@pytest.fixture(scope="module")
def spoilt() -> tuple[Case, Recorded]:
    return SPOILT, run_of(SPOILT, 9_000.0, [LATE])


def test_a_run_that_does_not_count_is_not_fitted_on(good, spoilt) -> None:
    basis = Basis([*good, spoilt])
    assert basis.fit(SEED) == Basis(good).fit(SEED)
    assert basis.fit(SEED) != fit([(case.layout(SEED), run) for case, run in basis.runs])


def test_how_many_runs_did_not_count_and_why_is_told(good, spoilt) -> None:
    basis, options = Basis([*good, spoilt]), CalibrateOptions()
    shown = page_of(basis.fit(SEED), basis, [], options, judge([], options), 0.0).text
    assert "Fitted on 6 runs of 15 s, of which 4 without" in shown
    assert f"1 more did not count: {SPOILT.name}: {LATE}." in shown
    settings = results_of(options, basis.fit(SEED), basis, judge([], options), 0.0).settings
    assert (settings["fitted_on"], settings["not_fitted_on"]) == (6, 1)
    assert settings["doubts"] == [f"{SPOILT.name}: {LATE}"]


def test_nothing_is_said_of_runs_that_all_count(good) -> None:
    basis = Basis(good)
    options = CalibrateOptions()
    assert "did not count" not in page_of(basis.fit(SEED), basis, [], options, judge([], options), 0.0).text


def test_too_few_that_count_are_refused_with_what_is_wrong_with_the_others(good, spoilt) -> None:
    doubted = [(case, replace(run, reasons=[LATE])) for case, run in good[4:]]
    with pytest.raises(BadInput, match=rf"runs: 2: must be at least 4 .*; 3 did not count: .*{LATE}.*{LATE}.*{LATE}"):
        Basis([*good[:4], *doubted, spoilt]).fit(SEED)
    with pytest.raises(BadInput, match=r"at least 4 without the laboratory's server$"):
        Basis(good[:4]).fit(SEED)
