from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.experiments import eq01, figures
from bench.experiments.figure import Effort, Experiment, Figure, Panel, Series
from bench.experiments.figures import EXPERIMENTS, FiguresOptions, as_csv, chosen
from bench.verdict import Check
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
    assert shown == ["small: one", "small: reached"]
    data = json.loads((tmp_path / "small.json").read_text())
    assert data["settings"] == {"seconds": 1.0, "repetitions": 1, "simulated": True, "conditions": "b = 3"}
    assert data["runs"][0]["p99_ms"] == 0.5
    assert (tmp_path / "small.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(csv.reader((tmp_path / "small.csv").read_text().splitlines()))) == 3


def test_resumed_work_keeps_what_the_same_settings_have_finished(tmp_path: Path, runs: list[str]) -> None:
    options = FiguresOptions(names=["small"], effort=EFFORT, directory=tmp_path, resume=True)
    shown: list[str] = []
    for _ in range(2):
        assert figures.figures(options, shown.append)[0].reached
    assert len(runs) == 1
    assert shown[-1] == "small: reached (kept)"
    figures.figures(replace(options, effort=replace(EFFORT, seconds=2.0)), shown.append)
    assert len(runs) == 2


def test_a_file_to_resume_from_that_is_no_result_is_refused(tmp_path: Path, runs: list[str]) -> None:
    (tmp_path / "small.json").write_text("{}")
    with pytest.raises(BadInput, match="resume"):
        figures.figures(FiguresOptions(names=["small"], effort=EFFORT, directory=tmp_path, resume=True), print)
    assert not runs


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, runs: list[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="directory"):
        figures.figures(FiguresOptions(names=["small"], effort=EFFORT, directory=tmp_path / "file" / "in"), print)


def test_an_unknown_figure_is_refused_and_none_means_all() -> None:
    assert chosen([]) == list(EXPERIMENTS)
    assert chosen(["fig09", "fig09"]) == ["fig09"]
    with pytest.raises(BadInput, match="fig99"):
        chosen(["fig99"])


def test_rows_with_different_fields_share_a_header() -> None:
    assert as_csv([{"a": 1}, {"b": 2}]) == "a,b\n1,\n,2\n"


def test_theory_holds_on_short_runs() -> None:
    figure = eq01.figure(Effort(seconds=4.0, repetitions=2))
    laws = [check for check in figure.checks if "mean" not in check.what]
    assert all(check.kept for check in laws), laws
    (exact,) = (row for row in figure.rows if row.get("burst") == 1)
    assert exact["simulated_ms"] == pytest.approx(exact["formula_ms"], rel=0.05)


def test_the_check_of_the_laws_sees_a_violation() -> None:
    """Two shares of more than the whole do better than the one bucket."""
    arrival_ns = list(range(0, 5_000_000, 50_000))
    one = eq01.history(arrival_ns, [0] * 100, [[(5_000_000_000, 2_000_000)]])
    more = eq01.history(arrival_ns, [0, 1] * 50, [[(5_000_000_000, 2_000_000)] * 2])
    assert more.sum_ns[-1] < one.sum_ns[-1]
    assert (more.work < one.work - 1e-3).any()
    assert np.all(np.diff(one.sum_ns) >= 0)
