from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.experiments.lab import live_layout as live
from bench.experiments.lab.figure import Effort
from bench.experiments.lab.layouts import LAB_US, envelope
from bench.experiments.lab.live_layout import plan_of
from bench.experiments.real import RealOptions, about_of, brokers_of, layout_of, real, row_of
from bench.experiments.real_figures import ALONE_SLOWER, REAL, conditions_of
from bench.harness.cluster_runs.trace import Trace
from bench.simulation.brokers import NO_PATHS, Machine, PathDelay, Paths, serve
from bench.simulation.calibration import Fitted
from bench.simulation.recorded import Layout, Recorded, recorded

_WAY = PathDelay(at_once=(100_000,), waited=(100_000,))
KNOWN = Fitted(
    machine=Machine(message_ns=0, firing_ns=10_000), awake_ns=0.0, lab_paths=Paths(single=_WAY, batched=_WAY)
)


async def made_up(
    layout: Layout, *, seconds: float, seed: int, slo_ms: float, keep_intended: bool = False, **_: object
) -> Recorded:
    """Recorded by brokers that are what the simulator takes them for; all is sent when it was meant to be."""
    assert slo_ms > 0
    machine = KNOWN.of(layout)
    rng = np.random.default_rng(seed)
    traces = []
    arrivals = layout.fleet.arrivals(layout.placement, len(layout.shares), seconds, rng)
    for at in layout.used:
        arrival_ns, heads = arrivals[at], int((layout.placement == at).sum())
        since_ns = arrival_ns - arrival_ns[0]
        delays = serve(since_ns, layout.shares[at], machine, batch=layout.fleet.batch, publishers=heads, rng=rng)
        due_ns = arrival_ns + delays.access_ns
        sent_ns = due_ns + delays.processing_ns
        traces.append(Trace([], np.zeros_like(due_ns), arrival_ns, due_ns, due_ns, sent_ns))
    found = recorded(layout, traces, warm_up_s=1.0, cpu_us=1.0, reasons=[])
    return replace(found, intended_ns=np.sort(np.concatenate(arrivals)) if keep_intended else None)


async def test_what_was_recorded_stands_beside_its_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "record_once", made_up)
    monkeypatch.setattr("bench.experiments.real_figures.calibrated", lambda: KNOWN)
    shown: list[str] = []
    (verdict,) = await real(RealOptions(names=["fig06a"], seconds=4.0, directory=tmp_path), shown.append)
    assert verdict.valid
    assert all(check.kept for check in verdict.checks[:3]), "in all, access, processing"
    points = [row for row in verdict.runs if row["row"] == "point"]
    assert [row["brokers"] for row in points] == [1, 2, 3, 4, 5, 6]
    ours = [row for row in verdict.runs if row["row"] == "run" and row["brokers"] == 2]
    assert [row["seed"] for row in ours] == [1, 2, 3]
    assert points[1]["p99_ms"] == sorted(row["p99_ms"] for row in ours)[1]
    assert shown[-1] == verdict.line
    data = json.loads((tmp_path / "fig06a-real.json").read_text())["results"]
    assert data["settings"]["simulated"] is False
    assert f"lab service time {ALONE_SLOWER * LAB_US:g} us" in data["settings"]["conditions"]
    assert (tmp_path / "fig06a-real.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
async def test_a_run_that_does_not_count_is_taken_again_and_then_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def late(layout: Layout, **options: object) -> Recorded:
        asked.append(layout)
        found = await made_up(layout, **options)  # type: ignore[arg-type]
        return Recorded(parts=found.parts, cpu_us=1.0, reasons=["the generator was late"])

    monkeypatch.setattr(live, "record_once", late)
    (verdict,) = await real(RealOptions(names=["fig06a"], seconds=2.0, runs=1, directory=tmp_path), lambda _: None)
    assert len(asked) == 12
    assert verdict.reasons[0] == "1, lb, seed 1: the generator was late"
    assert not verdict.reached


async def test_poisson_traffic_that_the_generator_held_back_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(layout: Layout, **options: object) -> Recorded:
        return replace(await made_up(layout, **options), late_max_ms=80.5)  # type: ignore[arg-type]

    monkeypatch.setattr(live, "record_once", stopped)
    (verdict,) = await real(RealOptions(names=["eq01"], seconds=2.0, directory=tmp_path), lambda _: None)
    assert verdict.reasons[0] == "1, lb, seed 1: the generator was 80.5 ms late once, more than 80 ms"


def test_srtm_takes_the_brokers_that_a_simulation_says_it_takes() -> None:
    figure = REAL["fig09b"]
    point = figure.points[1]
    k = brokers_of(figure, point, "srtm", seed=1)
    layout = layout_of(figure, point, "srtm", k, seed=1)
    assert len(layout.used) == k > 1
    heads = np.bincount(layout.placement)
    assert heads.max() - heads.min() <= 1
    parts = {(int(group), int(at)) for group, at in zip(layout.fleet.groups, layout.placement, strict=True)}
    assert len(parts) >= len(layout.used) * (layout.fleet.groups.max()), "every group is on every broker"


@pytest.mark.slow
async def test_all_runs_of_a_point_are_on_as_many_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "record_once", made_up)
    monkeypatch.setattr("bench.experiments.real.brokers_of", lambda _figure, _point, _strategy, seed: 1 + seed)
    (verdict,) = await real(RealOptions(names=["fig09b"], seconds=12.0, runs=2, directory=tmp_path), lambda _: None)
    assert {row["brokers"] for row in verdict.runs} == {2}


def test_a_caption_says_what_several_runs_are_made_of() -> None:
    figure = REAL["fig09b"]
    several, one = (about_of("fig09b", figure, Effort(seconds=2.0, repetitions=runs, seed=1)).runs for runs in (2, 1))
    assert several.startswith("medians of {repetitions} runs")
    assert one.startswith("{repetitions} run of")


def test_a_bucket_for_periodic_publishers_is_enough_for_other_phases_too() -> None:
    point = REAL["fig09b"].points[0]
    sized = [envelope(replace(point.fleet, phase_seed=draw)).burst_micro for draw in (1, 3)]
    assert point.bucket.burst_micro >= max(sized)
    assert REAL["fig06a"].points[0].bucket == envelope(REAL["fig06a"].points[0].fleet)


def test_spread_groups_are_asked_of_the_generator_as_the_fleet_has_them() -> None:
    figure = REAL["fig11"]
    layout = layout_of(figure, figure.points[-1], "maxmin", 2, seed=1)
    plan = plan_of(layout, ["127.0.0.1:1"] * len(layout.used), seconds=2.0, seed=1, slo_ms=4.0)
    assert plan.publishers.offset_ns[:25] == (np.arange(25) * 64_000_000 // 24).tolist()
    assert set(plan.publishers.target) == set(range(len(layout.used)))


async def test_a_row_is_of_the_worst_broker_on_each_side() -> None:
    figure = REAL["fig06a"]
    layout = layout_of(figure, figure.points[1], "lb", 2, seed=1)
    found = await made_up(layout, seconds=3.0, seed=1, slo_ms=1.0)
    row = row_of(figure.points[1], "lb", layout, found, replace(KNOWN.of(layout), paths=NO_PATHS), 1, figure.slo_ns)
    assert row["p99_ms"] > row["simulated_p99_ms"], "without the way the simulation is too fast"
    assert row["p99_ms"] >= max(float(np.percentile(part.access_ns[part.first :], 98)) / 1e6 for part in found.parts)


async def test_eq_1_is_held_against_every_burst_as_far_as_the_interval_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "record_once", made_up)
    monkeypatch.setattr("bench.experiments.real_figures.calibrated", lambda: KNOWN)
    (verdict,) = await real(RealOptions(names=["eq01"], seconds=120.0, directory=tmp_path), lambda _: None)
    assert verdict.reached, verdict.line
    checks = {check.what: check for check in verdict.checks[3:]}
    assert list(checks) == [f"mean access delay, b = {burst}" for burst in (1, 5, 25)]
    assert checks["mean access delay, b = 1"].bound == "3.64 ms ± 2 %, or in the 95 % interval"
    assert "±" in checks["mean access delay, b = 25"].measured
    points = [row for row in verdict.runs if row["row"] == "point"]
    assert [row["meant_mean_ms"] / row["access_mean_ms"] for row in points] == pytest.approx([1, 1, 1], rel=0.05)
    assert [row["controlled_mean_ms"] / row["exact_mean_ms"] for row in points] == pytest.approx([1, 1, 1], rel=0.02)


async def test_a_run_too_short_for_delays_so_rare_has_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "record_once", made_up)
    (verdict,) = await real(RealOptions(names=["eq01"], seconds=3.0, runs=1, directory=tmp_path), lambda _: None)
    (reason,) = verdict.reasons
    assert reason.startswith("b = 25: ")
    assert reason.endswith("of the batches have any delay, too few for their mean")


def test_a_mean_that_is_hardly_known_has_no_verdict() -> None:
    row = {"x": 25.0, "controlled_half_ms": 0.004, "theory_mean_ms": 0.005, "access_seen": 0.9, "closely_s": 1_234.5}
    assert REAL["eq01"].untold([row]) == ["b = 25: its mean access delay is known to ± 80 % alone, ± 5 % takes 1,234 s"]
    assert REAL["eq01"].untold([{**row, "controlled_half_ms": 0.001}]) == []


def test_a_mean_beside_eq_1_and_out_of_its_interval_falls_short() -> None:
    row = {"x": 25.0, "controlled_mean_ms": 0.0117, "controlled_half_ms": 0.002, "theory_mean_ms": 0.0052}
    (check,) = REAL["eq01"].checks([row])
    assert not check.kept
    assert check.measured == "0.0117 ± 0.002 ms"


def test_a_caption_says_which_of_the_papers_points_were_left_out_and_why() -> None:
    assert conditions_of(REAL["fig09b"]).startswith("5, 15 and 30 of the paper's 7 group sizes, each a run for itself")
    assert conditions_of(REAL["fig11"]).startswith("0, 4 and 16 ms of the paper's 6 spreads, ")
    assert conditions_of(REAL["fig06a"]).startswith("1,000 publishers"), "it has all of them"
