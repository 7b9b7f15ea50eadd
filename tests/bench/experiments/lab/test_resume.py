"""What ``srtm bench figures --resume`` keeps, and what is published of it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.experiments import run_figures as figures
from bench.experiments.lab.figure import Effort, Experiment, Figure
from bench.experiments.run_figures import QUICK, FiguresOptions
from bench.harness.machine import softirqs
from bench.harness.results import publish
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from srtm.errors import BadInput

OPTIONS = FiguresOptions(names=["small"], effort=Effort(seconds=1.0, repetitions=1), directory=Path())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The experiment ``small`` in place of all, of sources that nobody changed; how often it ran."""
    found: list[str] = []

    def figure(effort: Effort) -> Figure:
        found.append(f"{effort.seconds:g} s")
        series = Series(label="a", x=[1, 2], y=[0.5, 0.6])
        return Figure(
            rows=[{"p99_ms": 0.5}],
            panels=[Panel(title="t", x_label="x", series=[series])],
            checks=[Check("p99", "0.5 ms", "at most 1 ms", kept=True)],
            conditions="b = 3",
        )

    small = Experiment(name="small", title="Small", claim="It is.", columns={"p99, ms": "p99_ms"}, run=figure)
    monkeypatch.setattr(figures, "EXPERIMENTS", {"small": small})
    monkeypatch.setattr(figures, "source_fingerprint", lambda: "0123")
    return found


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for pages, of a tree where all is committed."""
    monkeypatch.setattr(publish, "uncommitted", list)
    folder = tmp_path / "pages"
    folder.mkdir()
    return folder


def test_what_the_same_settings_have_finished_is_kept(tmp_path: Path, runs: list[str]) -> None:
    options = replace(OPTIONS, directory=tmp_path, resume=True)
    shown: list[str] = []
    for _ in range(2):
        assert figures.figures(options, shown.append)[0].reached
    assert runs == ["1 s"]
    assert "small: reached (kept)" in shown
    figures.figures(replace(options, effort=replace(options.effort, seconds=2.0)), shown.append)
    assert runs == ["1 s", "2 s"]


def test_what_was_kept_is_published_as_what_was_just_made(tmp_path: Path, pages: Path, runs: list[str]) -> None:
    options = replace(OPTIONS, directory=tmp_path / "figures")
    figures.figures(options, print)
    assert list(pages.iterdir()) == []
    figures.figures(replace(options, resume=True, document=pages), print)
    assert len(runs) == 1
    assert "**Claim.** It is." in (pages / "small.md").read_text()
    for copy, kept in (("data/small.json", "small.json"), ("small.png", "small.png")):
        assert (pages / copy).read_bytes() == (tmp_path / "figures" / kept).read_bytes()


def test_what_ran_before_all_ordinary_work_says_so(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_FIFO)
    monkeypatch.setattr(os, "sched_getparam", lambda _: SimpleNamespace(sched_priority=5))
    monkeypatch.setattr(softirqs, "are_behind", lambda: False)
    figures.figures(replace(OPTIONS, directory=tmp_path), print)
    assert len(runs) == 1
    stored = json.loads((tmp_path / "small.json").read_text())
    assert stored["page"]["origin"]["host"].endswith(", under SCHED_FIFO 5")


def test_what_was_made_of_other_sources_is_not_kept(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, directory=tmp_path, resume=True)
    figures.figures(options, print)
    monkeypatch.setattr(figures, "source_fingerprint", lambda: "4567")
    figures.figures(options, print)
    assert len(runs) == 2


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["small.csv", "small.png"])
def test_what_was_not_finished_is_not_kept(tmp_path: Path, runs: list[str], missing: str) -> None:
    options = replace(OPTIONS, directory=tmp_path, resume=True)
    figures.figures(options, print)
    (tmp_path / missing).unlink()
    figures.figures(options, print)
    assert len(runs) == 2


def test_data_of_a_run_before_do_not_stay_beside_what_a_later_one_left(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, directory=tmp_path)
    figures.figures(options, print)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.experiments.lab.publishing.draw", stopped)
    with pytest.raises(KeyboardInterrupt):
        figures.figures(replace(options, effort=QUICK), print)
    assert not (tmp_path / "small.json").exists()


def test_a_file_to_resume_from_that_is_no_result_is_refused(tmp_path: Path, runs: list[str]) -> None:
    options = replace(OPTIONS, directory=tmp_path, resume=True)
    figures.figures(options, print)
    (tmp_path / "small.json").write_text("{}")
    with pytest.raises(BadInput, match="resume"):
        figures.figures(options, print)
    assert len(runs) == 1


def test_what_was_kept_counts_with_the_time_that_it_took(tmp_path: Path, runs: list[str]) -> None:
    options = replace(OPTIONS, directory=tmp_path, resume=True)
    figures.figures(options, print)
    data = json.loads((tmp_path / "small.json").read_text())
    data["results"]["settings"] |= {"took_s": 90.0, "processor_s": 60.0}
    (tmp_path / "small.json").write_text(json.dumps(data))
    shown: list[str] = []
    figures.figures(options, shown.append)
    assert len(runs) == 1
    assert ": 1.5 min, 1.0 min of one processor" in shown[-1]
