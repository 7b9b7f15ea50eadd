"""``srtm bench figures`` and what belongs to it: options and exit status."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.experiments.calibrate import CalibrateOptions, calibrate
from bench.experiments.figure import Effort
from bench.experiments.figures import EXPERIMENTS, QUICK, FiguresOptions, figures
from bench.experiments.figures import chosen as experiments
from srtm.commands.output import JsonOption, refuse_unwritable
from srtm.commands.running import run_trio

app = typer.Typer()

SeedOption = Annotated[int, typer.Option(help="Of the traffic: the same seed sends at the same instants.")]
DocumentOption = Annotated[bool, typer.Option("--document", help="Write into docs/evaluation.md too.")]


@app.command("calibrate")
def bench_calibrate(
    seconds: Annotated[float, typer.Option(min=2.0, help="Measured part of each run.")] = CalibrateOptions.seconds,
    seed: SeedOption = CalibrateOptions.seed,
    png: Annotated[Path | None, typer.Option(help="Where the picture goes.")] = None,
    document: DocumentOption = False,
    json_file: JsonOption = None,
) -> int:
    """The simulator's parameters from runs of real brokers, judged on other runs. Six minutes, on a quiet machine.

    Status 0 if every simulated p99, access and processing apart, is within 15 % of the measured one.
    """
    refuse_unwritable("png", None if png is None else str(png))
    options = CalibrateOptions(seconds=seconds, seed=seed, json_file=json_file, png=png, document=document)
    console = Console(highlight=False, stderr=json_file == "-")
    verdict = run_trio(partial(calibrate, options, partial(console.print, soft_wrap=True)))
    return 0 if verdict.reached else 1


@app.command("figures")
def bench_figures(
    names: Annotated[list[str] | None, typer.Argument(metavar=f"[{'|'.join(EXPERIMENTS)}]...")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short runs, few of them: a coarse picture.")] = False,
    seconds: Annotated[float, typer.Option(min=1.0, help="Of traffic in each simulated run.")] = Effort.seconds,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each point.")] = Effort.repetitions,
    seed: SeedOption = Effort.seed,
    directory: Annotated[Path, typer.Option(help="Where JSON, CSV and PNG go.")] = Path("figures"),
    resume: Annotated[bool, typer.Option("--resume", help="Keep what the same command finished there.")] = False,
    document: DocumentOption = False,
) -> int:
    """The paper's figures in the simulator: all, or those named.

    Status 0 if everything that the paper claims of them is seen.
    """
    effort = Effort(
        seconds=QUICK.seconds if quick else seconds,
        repetitions=QUICK.repetitions if quick else repetitions,
        seed=seed,
    )
    options = FiguresOptions(
        names=experiments(names or ()), effort=effort, directory=directory, resume=resume, document=document
    )
    verdicts = figures(options, partial(Console(highlight=False).print, soft_wrap=True))
    return 0 if all(verdict.reached for verdict in verdicts) else 1
