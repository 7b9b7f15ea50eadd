from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.calibration import Fitted
from bench.experiments import real as real_figures
from bench.experiments.layouts import LAB_US, envelope
from bench.experiments.real import RealOptions, layout_of, real, row_of, theory_ms
from bench.experiments.real_figures import REAL, chosen
from bench.live import plan_of
from bench.recorded import Layout, Recorded, recorded
from bench.simulator import Machine, serve
from bench.trace import Trace
from srtm.errors import BadInput

KNOWN = Fitted(machine=Machine(message_ns=0, firing_ns=10_000), awake_ns=0.0, lab_path_ns=(100_000,))


async def made_up(layout: Layout, *, seconds: float, seed: int, folder: Path, slo_ms: float) -> Recorded:
    """Recorded by brokers that are what the simulator takes them for."""
    assert slo_ms > 0, folder
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
    return recorded(layout, traces, warm_up_s=1.0, cpu_us=1.0, reasons=[])


async def test_what_was_recorded_stands_beside_its_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_figures, "record", made_up)
    monkeypatch.setattr("bench.experiments.real_figures.calibrated", lambda: KNOWN)
    shown: list[str] = []
    (verdict,) = await real(RealOptions(names=["fig06a"], seconds=4.0, directory=tmp_path), shown.append)
    assert verdict.valid
    assert verdict.checks[0].kept
    assert [row["brokers"] for row in verdict.runs] == [1, 2, 3, 4, 5, 6]
    assert shown[-1] == verdict.line
    data = json.loads((tmp_path / "fig06a-real.json").read_text())
    assert data["settings"]["simulated"] is False
    assert f"lab service time {LAB_US:g} us" in data["settings"]["conditions"]
    assert (tmp_path / "fig06a-real.png").read_bytes().startswith(b"\x89PNG")


async def test_a_run_that_does_not_count_is_taken_again_and_then_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def late(layout: Layout, **options: object) -> Recorded:
        asked.append(layout)
        found = await made_up(layout, **options)  # type: ignore[arg-type]
        return Recorded(parts=found.parts, cpu_us=1.0, reasons=["the generator was late"])

    monkeypatch.setattr(real_figures, "record", late)
    (verdict,) = await real(RealOptions(names=["fig06a"], seconds=2.0, directory=tmp_path), lambda _: None)
    assert len(asked) == 12
    assert verdict.reasons[0] == "1, lb: the generator was late"
    assert not verdict.reached


async def test_poisson_traffic_that_the_generator_held_back_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(layout: Layout, **options: object) -> Recorded:
        return replace(await made_up(layout, **options), late_max_ms=10.5)  # type: ignore[arg-type]

    monkeypatch.setattr(real_figures, "record", stopped)
    (verdict,) = await real(RealOptions(names=["eq01"], seconds=2.0, directory=tmp_path), lambda _: None)
    assert verdict.reasons[0] == "1, lb: the generator was 10.5 ms late once, more than 10 ms"


def test_srtm_takes_the_brokers_that_a_simulation_says_it_takes() -> None:
    figure = REAL["fig09b"]
    layout = layout_of(figure, figure.points[1], "srtm", seed=1)
    assert len(layout.used) > 1
    heads = np.bincount(layout.placement)
    assert heads.max() - heads.min() <= 1
    parts = {(int(group), int(at)) for group, at in zip(layout.fleet.groups, layout.placement, strict=True)}
    assert len(parts) >= len(layout.used) * (layout.fleet.groups.max()), "every group is on every broker"


def test_a_bucket_for_periodic_publishers_is_enough_for_other_phases_too() -> None:
    point = REAL["fig09b"].points[0]
    sized = [envelope(replace(point.fleet, phase_seed=draw)).burst_micro for draw in (1, 3)]
    assert point.bucket.burst_micro >= max(sized)
    assert REAL["fig06a"].points[0].bucket == envelope(REAL["fig06a"].points[0].fleet)


def test_spread_groups_are_asked_of_the_generator_as_the_fleet_has_them() -> None:
    figure = REAL["fig11"]
    layout = layout_of(figure, figure.points[-1], "maxmin", seed=1)
    plan = plan_of(layout, ["127.0.0.1:1"] * len(layout.used), seconds=2.0, seed=1, slo_ms=4.0)
    assert plan.publishers.offset_ns[:25] == (np.arange(25) * 64_000_000 // 24).tolist()
    assert set(plan.publishers.target) == set(range(len(layout.used)))


async def test_a_row_is_of_the_worst_broker_on_each_side(tmp_path: Path) -> None:
    figure = REAL["fig06a"]
    layout = layout_of(figure, figure.points[1], "lb", seed=1)
    found = await made_up(layout, seconds=3.0, seed=1, folder=tmp_path, slo_ms=1.0)
    row = row_of(figure.points[1], "lb", layout, found, replace(KNOWN.of(layout), path_ns=(0,)), 1, figure.slo_ns)
    assert row["p99_ms"] > row["simulated_p99_ms"], "without the way the simulation is too fast"
    assert row["p99_ms"] >= max(float(np.percentile(part.access_ns[part.first :], 98)) / 1e6 for part in found.parts)


async def test_eq_1_is_told_for_a_bucket_of_one_and_for_nobody_who_fires_together(tmp_path: Path) -> None:
    figure = REAL["eq01"]
    layout = layout_of(figure, figure.points[0], "lb", seed=3)
    assert layout.shares == [(11_000_000_000, 1_000_000)]
    found = await made_up(layout, seconds=30.0, seed=3, folder=tmp_path, slo_ms=1.0)
    row = row_of(figure.points[0], "lb", layout, found, figure.machine, 3, figure.slo_ns)
    assert all(check.kept for check in figure.checks([row]))
    assert row["theory_mean_ms"] == pytest.approx(0.4545, abs=1e-4)
    assert theory_ms(REAL["fig09b"].points[0].fleet, figure.points[0].bucket, 1) is None


def test_a_figure_that_two_cores_do_not_carry_is_refused_by_name() -> None:
    assert chosen([]) == ["fig06a", "eq01", "fig09b", "fig11"]
    with pytest.raises(BadInput, match=r"real.*fig07a.*must be one of fig06a"):
        chosen(["fig07a"])
