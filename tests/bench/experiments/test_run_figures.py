from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bench.experiments import run_figures as figures
from bench.experiments.figures import eq01, fig06, fig07, fig08, fig10, limiters, modes, prop1
from bench.experiments.lab.figure import About, Effort, Experiment, Figure
from bench.experiments.lab.points import AS_MANY
from bench.experiments.lab.publishing import Shown, as_csv
from bench.experiments.run_figures import FiguresOptions, known
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from srtm.errors import BadInput

EFFORT = Effort(seconds=1.0, repetitions=1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The experiment ``small`` in place of all; how often it ran."""
    found: list[str] = []

    def figure(effort: Effort) -> Figure:
        effort.step("one")
        found.append("run")
        series = Series(label="a", x=[1, 2], y=[0.5, 0.0], spread=[0.1, 0.1], notes=["1", "2"])
        return Figure(
            rows=[{"part": "a", "brokers": 1, "p99_ms": 0.5}, {"part": "b", "burst": 3}],
            panels=[Panel(title="t", x_label="x", series=[series, replace(series, marks_only=True)])],
            checks=[Check("p99", "0.5 ms", "at most 1 ms", kept=True)],
            conditions="b = 3",
        )

    small = Experiment(name="small", title="Small", claim="It is.", columns={"p99, ms": "p99_ms"}, run=figure)
    monkeypatch.setattr(figures, "EXPERIMENTS", {"small": small})
    return found


def test_a_figure_writes_its_data_its_rows_and_its_picture(tmp_path: Path, runs: list[str]) -> None:
    shown: list[str] = []
    (verdict,) = figures.figures(FiguresOptions(names=["small"], effort=EFFORT, directory=tmp_path), shown.append)
    assert verdict.reached
    assert shown[:2] == ["small: one", "small: reached"]
    assert shown[2].startswith("1 of 1 figures, 1 runs of 1 s a point: 0.0 min, ")
    data = json.loads((tmp_path / "small.json").read_text())["results"]
    assert data["settings"].items() >= {"seconds": 1.0, "repetitions": 1, "conditions": "b = 3"}.items()
    assert data["runs"][0]["p99_ms"] == 0.5
    assert (tmp_path / "small.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(csv.reader((tmp_path / "small.csv").read_text().splitlines()))) == 3


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, runs: list[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="directory"):
        figures.figures(FiguresOptions(names=["small"], effort=EFFORT, directory=tmp_path / "file" / "in"), print)


@pytest.mark.parametrize(
    ("effort", "said"),
    [
        (Effort(), "Simulated, 10 runs of 60 s a point; b = 3; seed 1"),
        (Effort(seconds=15.0, repetitions=10), "Simulated, coarse: 10 runs of 15 s a point; b = 3; seed 1"),
        (Effort(repetitions=2), "Simulated, coarse: 2 runs of 60 s a point; b = 3; seed 1"),
    ],
)
def test_a_caption_says_how_many_runs_of_how_many_seconds_and_when_that_is_coarse(effort: Effort, said: str) -> None:
    about = About(name="a", title="A", claim="It is.", columns={})
    figure = Figure(rows=[], panels=[], checks=[], conditions="b = 3")
    assert Shown(name="a", about=about, figure=figure, effort=effort).made == said


def test_less_of_what_a_figure_does_not_depend_on_is_not_coarse() -> None:
    figure = Figure(rows=[], panels=[], checks=[], conditions="")
    for about, effort in (
        (prop1.EXPERIMENT, Effort(seconds=1.0)),
        (modes.EXPERIMENT, Effort(repetitions=1)),
        (limiters.EXPERIMENT, Effort(repetitions=1)),
    ):
        assert "coarse" not in Shown(name="a", about=about, figure=figure, effort=effort).made
        less = Effort(seconds=1.0, repetitions=1)
        assert "coarse" in Shown(name="a", about=about, figure=figure, effort=less).made


def test_rows_with_different_fields_share_a_header() -> None:
    assert as_csv([{"a": 1}, {"b": 2}]) == "a,b\n1,\n,2\n"


@pytest.mark.slow
def test_theory_holds_on_short_runs() -> None:
    (exact,) = (row for row in eq01.figure(Effort(seconds=4.0, repetitions=2)).rows if row["burst"] == 1)
    assert exact["simulated_ms"] == pytest.approx(exact["formula_ms"], rel=0.05)


def test_no_split_of_any_shares_ever_did_better_than_the_one_bucket() -> None:
    figure = prop1.figure(EFFORT)
    assert all(check.kept for check in figure.checks), figure.checks
    one, *splits = figure.panels[0].series
    assert all(split.y[-1] > one.y[-1] for split in splits)


def test_the_check_of_the_laws_sees_a_violation() -> None:
    """Two shares of more than the whole do better than the one bucket."""
    arrival_ns = list(range(0, 5_000_000, 50_000))
    one = prop1.history(arrival_ns, [0] * 100, [[(5_000_000_000, 2_000_000)]])
    more = prop1.history(arrival_ns, [0, 1] * 50, [[(5_000_000_000, 2_000_000)] * 2])
    assert more.sum_ns[-1] < one.sum_ns[-1]
    assert (more.work < one.work - 1e-3).any()
    assert np.all(np.diff(one.sum_ns) >= 0)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "part"), [(fig06, "6a"), (fig06, "6b"), (fig07, "7c"), (fig08, "8a")])
def test_a_part_of_a_figure_is_run_alone(module: ModuleType, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("PUBLISHERS", (1_000, 8_000, 10_000)), ("BROKERS", 2)):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, few)
    figure = module.figure(replace(EFFORT, parts=(part,)))
    assert {row["part"] for row in figure.rows} == {part}
    assert len(figure.panels) == 1
    assert all(check.what.startswith((part, "up to")) for check in figure.checks)
    assert all("residual" in row and row["bucket"].startswith("r = ") for row in figure.rows)


def test_the_names_of_parts_select_them_and_pages_are_of_whole_figures_only(tmp_path: Path) -> None:
    assert known()["fig08d"].parts == ("8d",)
    assert known()["fig08"].parts == ()
    options = FiguresOptions(names=["fig08d"], effort=EFFORT, directory=tmp_path, document=tmp_path)
    with pytest.raises(BadInput, match=r"fig08d.*name fig08"):
        figures.figures(options, print)


@pytest.mark.slow
def test_max_min_on_as_many_brokers_as_srtm_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig10, "GROUP_SIZES", (1, 30))
    figure = fig10.figure(replace(EFFORT, seconds=5.0))
    assert all(check.kept for check in figure.checks if "than SRTM" in check.what), figure.checks
    by_x = {(row["part"], row["x"], row["strategy"]): row for row in figure.rows}
    assert all(by_x[part, x, "srtm"]["brokers"] == by_x[part, x, AS_MANY]["brokers"] for part, x, _ in by_x)
    spread, blind = (by_x["10 (as 9a)", 30, strategy]["residual"] for strategy in ("srtm", AS_MANY))
    assert spread > blind
    assert {series.label for series in figure.panels[0].series} == {"SRTM", "Max-Min", "Max-Min, brokers of SRTM"}


@pytest.mark.slow
def test_the_modes_are_shown_by_what_they_delay_and_say() -> None:
    figure = modes.figure(replace(EFFORT, seconds=2.0))
    by_kind = {row["kind"]: row for row in figure.rows}
    assert by_kind["static"]["control_per_s"] == 0 < by_kind["gdrl"]["control_per_s"]
    assert by_kind["one bucket"]["delay_sum_s"] <= min(row["delay_sum_s"] for row in figure.rows)
    assert [check.what for check in figure.checks] == [
        "sum of access delay under fitted",
        "p99 access delay under fitted",
        "modes that let more go than (r, b)",
    ]
