"""One command a figure, each the same as ``figures`` with its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.commands import figures as figure_commands
from bench.commands.main import app
from bench.experiments.real import RealOptions
from bench.experiments.run_figures import FiguresOptions
from bench.harness.results.verdict import Check, Verdict
from srtm.errors import BadInput

OF_THE_PAPER = ["fig06a", "fig06b", *(f"fig07{part}" for part in "abcd"), *(f"fig08{part}" for part in "abcd")]
OF_THE_PAPER += ["fig09a", "fig09b", "fig10", "fig11", "table1", "eq01", "prop1", "modes"]


def test_every_figure_has_a_command() -> None:
    assert set(OF_THE_PAPER) < set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_a_figures_command_is_figures_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[FiguresOptions] = []

    def figures(options: FiguresOptions, _: object) -> list[Verdict]:
        asked.append(options)
        reasons = [] if len(asked) == 1 else ["late"]
        return [Verdict("x", "", [Check("x", "1", "2", kept=False)], reasons=reasons)]

    monkeypatch.setattr(figure_commands, "figures", figures)
    arguments = ["--quick", "--seed", "7", "--seconds", "8", "--directory", str(tmp_path)]
    results = [
        CliRunner().invoke(app, command, standalone_mode=False)
        for command in (["fig08d", *arguments], ["figures", "fig08d", *arguments])
    ]
    assert asked[0] == asked[1]
    assert asked[0].names == ["fig08d"]
    assert (asked[0].effort.seed, asked[0].effort.seconds, asked[0].effort.repetitions) == (7, 8.0, 2)
    assert [result.return_value for result in results] == [0, 3], "the status says whether it counts"
    assert "not confirmed: x: fell short" in results[0].output


def test_real_brokers_are_asked_for_by_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RealOptions] = []

    async def real(options: RealOptions, _: object) -> list[Verdict]:
        asked.append(options)
        return []

    monkeypatch.setattr(figure_commands, "real", real)
    for command in (
        ["fig06a", "--real"],
        ["figures", "--real", "--quick"],
        ["fig11", "--real", "--seconds", "7"],
        ["figures", "eq01", "--real", "--quick", "--seconds", "5", "--runs", "2"],
    ):
        result = CliRunner().invoke(app, [*command, "--directory", str(tmp_path)], standalone_mode=False)
        assert result.return_value == 0
    assert [(one.names, one.seconds, one.runs) for one in asked] == [
        (["fig06a"], None, None),
        (["fig06a", "eq01", "fig09b", "fig11"], 4.0, 1),
        (["fig11"], 7.0, None),
        (["eq01"], 5.0, 2),
    ]


@pytest.mark.parametrize("command", [["fig06a"], ["figures", "fig06a"]])
def test_runs_on_real_brokers_are_not_resumed(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_commands, "real", None)
    result = CliRunner().invoke(app, [*command, "--real", "--resume"], standalone_mode=False)
    assert isinstance(result.exception, BadInput)
    assert str(result.exception).startswith("resume: ")
    assert "must not be given with --real" in str(result.exception)


def test_what_two_cores_do_not_carry_is_refused() -> None:
    result = CliRunner().invoke(app, ["fig07a", "--real"], standalone_mode=False)
    assert isinstance(result.exception, BadInput)
    assert "two cores" in str(result.exception)
