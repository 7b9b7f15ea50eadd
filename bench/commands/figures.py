"""``srtm bench figures`` and what belongs to it: options and exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.console.exit_status import exit_status, summary
from bench.console.options import DocumentOption, RunsJsonOption, SeedOption, saying
from bench.console.selection import chosen
from bench.experiments.calibrate import CalibrateOptions, calibrate
from bench.experiments.lab.figure import Effort
from bench.experiments.real import QUICK_S as REAL_QUICK_S
from bench.experiments.real import RealOptions, real
from bench.experiments.real_figures import REAL
from bench.experiments.run_figures import EXPERIMENTS, QUICK, FiguresOptions, figures, known
from bench.harness.results.publish import RESULTS
from bench.harness.results.verdict import Verdict
from srtm.console.output import refuse_unwritable
from srtm.console.running import run_trio
from srtm.errors import BadInput

app = typer.Typer()


@app.command("calibrate")
def bench_calibrate(
    seconds: Annotated[float, typer.Option(min=2.0, help="Measured part of each run.")] = CalibrateOptions.seconds,
    seed: SeedOption = CalibrateOptions.seed,
    png: Annotated[Path | None, typer.Option(help="Where the picture goes.")] = None,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """The simulator's parameters from runs of real brokers, judged on other runs. Six minutes, on a quiet machine.

    Says whether every simulated p99, access and processing apart, is within 15 % of the measured one. Status 0 if all
    runs count, 3 if not.
    """
    refuse_unwritable("png", None if png is None else str(png))
    options = CalibrateOptions(
        seconds=seconds, seed=seed, json_file=json_file, png=png, document=RESULTS if document else None
    )
    return exit_status([run_trio(partial(calibrate, options, saying(json_file)))])


_REAL_SECONDS = ", ".join(f"{figure.seconds:g} ({name})" for name, figure in REAL.items())
_REAL_RUNS = ", ".join(f"{figure.runs} ({name})" for name, figure in REAL.items())
QuickOption = Annotated[bool, typer.Option("--quick", help="Short runs, few of them: a coarse picture.")]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        help="Of traffic in each run, measured.",
        show_default=f"{Effort.seconds:g}, with --real {_REAL_SECONDS}; shorter with --quick",
    ),
]
RepetitionsOption = Annotated[
    int | None,
    typer.Option(
        "--repetitions",
        "--runs",
        min=1,
        help="Of each point, each with its seed.",
        show_default=f"{Effort.repetitions}, with --quick {QUICK.repetitions}; with --real {_REAL_RUNS}, quick 1",
    ),
]
DirectoryOption = Annotated[Path, typer.Option(help="Where JSON, CSV and PNG go.")]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Keep (and, with --document, publish) what is finished there, of the same commit and changes; not with "
        "--real.",
    ),
]


RealOption = Annotated[bool, typer.Option("--real", help="On real brokers, where two cores carry it.")]


@app.command("figures")
def bench_figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"Of: {', '.join(EXPERIMENTS)}. Default: all.")
    ] = None,
    quick: QuickOption = False,
    seconds: SecondsOption = None,
    repetitions: RepetitionsOption = None,
    seed: SeedOption = Effort.seed,
    directory: DirectoryOption = Path("figures"),
    resume: ResumeOption = False,
    on_real: RealOption = False,
    document: DocumentOption = False,
) -> int:
    """The paper's figures in the simulator: all, or those named; also a part of one, as fig06a.

    An hour for all of them, three quarters of one with --real. Lists at the end which of the paper's claims are not
    confirmed. Status 0 if all runs count, 3 if not.
    """
    if on_real:
        if resume:
            raise BadInput("resume", resume, "must not be given with --real: every run is made anew")
        return _show_real(names or (), quick, seconds, repetitions, seed, directory, document)
    effort = _effort(quick, seconds, repetitions, seed)
    options = FiguresOptions(
        names=chosen("figure", names or (), known(), usual=EXPERIMENTS),
        effort=effort,
        directory=directory,
        resume=resume,
        document=RESULTS if document else None,
    )
    return _end(figures(options, saying()))


def _effort(quick: bool, seconds: float | None, repetitions: int | None, seed: int) -> Effort:
    """What is given goes before what is quick."""
    usual = QUICK if quick else Effort()
    return replace(usual, seconds=seconds or usual.seconds, repetitions=repetitions or usual.repetitions, seed=seed)


def _show_real(
    names: Sequence[str],
    quick: bool,
    seconds: float | None,
    runs: int | None,
    seed: int,
    directory: Path,
    document: bool,
) -> int:
    options = RealOptions(
        names=chosen("real", names, REAL, why="two cores do not carry the others"),
        seconds=seconds or (REAL_QUICK_S if quick else None),
        runs=runs or (1 if quick else None),
        seed=seed,
        directory=directory,
        document=RESULTS if document else None,
    )
    return _end(run_trio(partial(real, options, saying())))


def _end(verdicts: Sequence[Verdict]) -> int:
    saying()(summary(verdicts))
    return exit_status(verdicts)


def _command(name: str) -> Callable[..., int]:
    def command(
        quick: QuickOption = False,
        seconds: SecondsOption = None,
        repetitions: RepetitionsOption = None,
        seed: SeedOption = Effort.seed,
        directory: DirectoryOption = Path("figures"),
        resume: ResumeOption = False,
        on_real: RealOption = False,
        document: DocumentOption = False,
    ) -> int:
        return bench_figures([name], quick, seconds, repetitions, seed, directory, resume, on_real, document)

    return command


def _title(name: str) -> str:
    selected = known()[name]
    return f"{', '.join(selected.parts)}: {selected.experiment.title}" if selected.parts else selected.experiment.title


for _name, _selected in known().items():
    if _selected.parts or not _selected.experiment.parts:
        _what = _title(_name)
        app.command(_name, short_help=_what, help=f"{_what}. Some minutes. The same as `srtm bench figures {_name}`.")(
            _command(_name)
        )
