"""Parameters from recorded runs: found again where the runs were made by a broker whose parameters are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.harness.cluster_runs.trace import Trace
from bench.simulation.brokers import Machine, PathDelay, Paths, serve
from bench.simulation.calibration import Fitted, Run, apart, calibrated, compared, fit, keep, text
from bench.simulation.recorded import Layout, Recorded, recorded
from bench.simulation.traffic import SECOND_NS, Fleet
from srtm.errors import BadInput, InternalError
from srtm.units import MICRO


def path_of(*us: int) -> PathDelay:
    """After tokens it takes 7 us more."""
    return PathDelay(at_once=tuple(1_000 * one for one in us), waited=tuple(1_000 * one + 7_000 for one in us))


def is_found(found: PathDelay, true: PathDelay) -> bool:
    """With each of the true values in the middle of its fourth."""
    return all(
        np.percentile(seen, [12, 37, 62, 87], method="inverted_cdf") == pytest.approx(known, abs=2e3)
        for seen, known in ((found.at_once, true.at_once), (found.waited, true.waited))
    )


WAYS = Paths(single=path_of(20, 40, 60, 300), batched=path_of(50, 90, 120, 200))
BY_TIMER = Paths(single=path_of(50, 70, 90, 500), batched=path_of(80, 110, 150, 600))
TRUE = Machine(message_ns=9_000, firing_ns=12_000, connection_ns=4.0, paths=WAYS)
AWAKE_NS = 5e6
EPOCH_NS = 77 * SECOND_NS
BARE = [
    Fleet(count=300),
    Fleet(count=1_000),
    Fleet(count=100, rate=100.0),
    Fleet(count=1_000, batch=10),
    Fleet(count=600, batch=5),
]
IN_LABORATORY = [Fleet(count=300), Fleet(count=300, batch=4)]


def layout_of(fleet: Fleet, lab_us: float = 0.0, burst: int = 8) -> Layout:
    share = (round(1.1 * fleet.load * MICRO), burst * MICRO)
    return Layout(fleet=fleet, placement=np.zeros(fleet.count, dtype=np.int64), shares=[share], lab_us=lab_us)


def run_of(layout: Layout, machine: Machine, seed: int = 1) -> Run:
    """What a broker that is ``machine`` would have recorded in ten seconds."""
    fleet, rng = layout.fleet, np.random.default_rng(seed)
    arrival_ns = fleet.arrivals(layout.placement, 1, 10.0, rng)[0]
    arrival_ns -= arrival_ns[0]
    served = machine if not layout.lab_us else replace(machine, lab_ns=1_000 * layout.lab_us, paths=BY_TIMER)
    delays = serve(arrival_ns, layout.shares[0], served, batch=fleet.batch, publishers=fleet.count, rng=rng)
    due_ns = EPOCH_NS + arrival_ns + delays.access_ns
    sent_ns = due_ns + delays.processing_ns
    trace = Trace([], np.zeros_like(due_ns), EPOCH_NS + arrival_ns, due_ns, due_ns, sent_ns)
    cpu_ns = machine.mean_ns(fleet.batch, fleet.count) + AWAKE_NS / fleet.load
    return layout, recorded(layout, [trace], warm_up_s=1.0, cpu_us=cpu_ns / 1_000, reasons=[])


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit([*(run_of(layout_of(fleet), TRUE) for fleet in BARE), *laboratory()])


def laboratory() -> list[Run]:
    return [run_of(layout_of(fleet, lab_us=200.0), TRUE) for fleet in IN_LABORATORY]


def test_the_costs_of_a_broker_are_found_again(fitted: Fitted) -> None:
    found = fitted.machine
    assert found.message_ns == pytest.approx(TRUE.message_ns, rel=1e-3)
    assert found.firing_ns == pytest.approx(TRUE.firing_ns, rel=1e-3)
    assert found.connection_ns == pytest.approx(TRUE.connection_ns, rel=1e-3)
    assert fitted.awake_ns == pytest.approx(AWAKE_NS, rel=1e-3)
    assert text(fitted).startswith("9 us a message, 12 us a firing, 4 ns of each message")


def test_what_a_message_takes_besides_is_found_again_by_how_it_came_and_whether_it_waited(fitted: Fitted) -> None:
    for found, true in ((fitted.machine.paths, WAYS), (fitted.lab_paths, BY_TIMER)):
        assert is_found(found.single, true.single)
        assert is_found(found.batched, true.batched)
    assert "alone after tokens 47 and 307 us" in text(fitted)


@pytest.mark.parametrize(("fleet", "lab_us"), [(Fleet(count=700, batch=2), 0.0), (Fleet(count=200, batch=3), 200.0)])
def test_other_traffic_of_the_same_broker_is_told_within_the_bound(fitted: Fitted, fleet: Fleet, lab_us: float) -> None:
    layout, run = run_of(layout_of(fleet, lab_us, burst=8), TRUE, seed=5)
    found = compared("other", run, fitted.of(layout), seed=9)
    assert found.measured.access_p99_ns == found.simulated.access_p99_ns > 0
    assert found.simulated != found.measured
    assert found.check().kept


def test_what_was_found_is_kept_for_the_figures(fitted: Fitted, tmp_path: Path) -> None:
    file = tmp_path / "calibrated.json"
    keep(fitted, file)
    assert calibrated(file) == fitted
    assert calibrated(file).laboratory(10.0) == replace(fitted.machine, lab_ns=10_000, paths=fitted.lab_paths)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"machine": 1}'])
def test_a_file_without_parameters_is_refused_by_name(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "calibrated.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=r"calibration: .*/calibrated\.js.*: must be what srtm bench calibrate writes"):
        calibrated(file)


def test_another_broker_is_told_apart(fitted: Fitted) -> None:
    layout = layout_of(Fleet(count=1_000))
    slower = replace(TRUE, paths=Paths(single=path_of(40, 80, 120, 600)))
    found = compared("slower", run_of(layout, slower)[1], fitted.of(layout), seed=9)
    assert found.access_off == 0
    assert not found.check().kept


def test_costs_need_as_many_runs_as_there_are_terms() -> None:
    with pytest.raises(BadInput, match=r"runs: 3: must be at least 4"):
        fit([*(run_of(layout_of(fleet), TRUE) for fleet in BARE[:3]), *laboratory()])


@pytest.mark.parametrize(
    ("fleets", "burst", "lacking"),
    [
        ([], 8, "in the laboratory, with batches of 1, with messages that did not wait"),
        (IN_LABORATORY[:1], 8, "in the laboratory, with larger batches, with messages that did not wait"),
        (IN_LABORATORY, 5_000, "in the laboratory, with batches of 1, with messages that waited"),
    ],
)
def test_every_kind_of_message_needs_a_run_that_has_it(fleets: list[Fleet], burst: int, lacking: str) -> None:
    runs = [run_of(layout_of(fleet), TRUE) for fleet in BARE]
    runs += [run_of(layout_of(fleet, 200.0, burst), TRUE) for fleet in fleets]
    with pytest.raises(BadInput, match=f"runs: 0: must be at least 1 {lacking} for tokens"):
        fit(runs)


def test_one_stopped_run_says_nothing_of_the_others() -> None:
    stopped = replace(TRUE, paths=Paths(single=path_of(80_000)))
    runs = [run_of(layout_of(fleet), stopped if fleet is BARE[0] else TRUE) for fleet in BARE]
    found = fit([*runs, *laboratory()])
    assert max(*found.machine.paths.single.at_once, *found.machine.paths.single.waited) < 1_000_000


def test_delays_of_less_than_a_microsecond_are_none() -> None:
    assert apart(900, 0) == 0.0
    assert apart(3_000, 0) == 3.0
    assert apart(80, 100) == 0.0
    assert apart(8_000, 10_000) == pytest.approx(0.2)


def test_only_what_came_after_the_warm_up_counts_and_all_of_it_is_simulated() -> None:
    _, run = run_of(layout_of(Fleet(count=100, process="periodic")), TRUE)
    (part,) = run.parts
    assert (len(part.arrival_ns), len(part.measured.access_ns)) == (10_000, 9_000)
    assert np.array_equal(part.simulated(TRUE, np.random.default_rng(1)).access_ns, part.measured.access_ns)


def test_a_trace_with_a_message_that_was_not_sent_is_no_finished_run() -> None:
    layout = layout_of(Fleet(count=1))
    column = np.array([5], dtype=np.int64)
    trace = Trace([], column, column, column, column, np.zeros(1, dtype=np.int64))
    with pytest.raises(InternalError, match="not sent"):
        recorded(layout, [trace], warm_up_s=1.0, cpu_us=1.0, reasons=[])


def test_a_run_keeps_its_reasons_not_to_count() -> None:
    layout, run = run_of(layout_of(Fleet(count=100)), TRUE)
    assert isinstance(run, Recorded)
    assert layout.used == [0]
    assert replace(run, reasons=["late"]).reasons == ["late"]
