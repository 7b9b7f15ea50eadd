"""``srtm bench adaptation``: options and exit status."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.console.options import DocumentOption, SeedOption, saying
from bench.console.selection import chosen
from bench.experiments.steps.run import COUNTED_S, MODES, SETTLING_S, STEPS, TAIL_S
from bench.experiments.steps.step_runs import AdaptationOptions, adaptation
from bench.experiments.steps.table import missed
from bench.harness.results.publish import RESULTS
from srtm.console.output import JsonOption
from srtm.console.running import run_trio

app = typer.Typer()


@app.command("adaptation")
def bench_adaptation(
    steps: Annotated[list[str] | None, typer.Option("--step", help=f"{', '.join(STEPS)}; repeatable.")] = None,
    modes: Annotated[list[str] | None, typer.Option("--mode", help=f"{' | '.join(MODES)}; repeatable.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Of each step under each mode.")] = AdaptationOptions.runs,
    before_s: Annotated[
        float,
        typer.Option(
            min=SETTLING_S + COUNTED_S,
            help=f"Of traffic before the step, of which the last {COUNTED_S:g} count; more where more counts.",
        ),
    ] = AdaptationOptions.least_before_s,
    after_s: Annotated[float, typer.Option(min=TAIL_S + 1, help="Watched after it.")] = AdaptationOptions.after_s,
    long_s: Annotated[
        float,
        typer.Option(min=2 * (TAIL_S + 1), help="Instead, under proportional with the paper's window; half with 2 s."),
    ] = AdaptationOptions.long_s,
    directory: Annotated[Path, typer.Option(help="Where each run is kept.")] = AdaptationOptions.directory,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep the runs that are there, of this seed and the same commit and changes.",
        ),
    ] = False,
    seed: SeedOption = AdaptationOptions.seed,
    document: DocumentOption = False,
    json_file: JsonOption = None,
) -> int:
    """How soon a split follows when traffic moves between two real brokers: each step under each mode.

    Says first how long it will take. Status 0 if fitted and proportional are as fast as they must be, and static never.
    """
    options = AdaptationOptions(
        steps=tuple(chosen("step", steps or (), STEPS)),
        modes=tuple(chosen("mode", modes or (), MODES)),
        runs=runs,
        least_before_s=before_s,
        after_s=after_s,
        long_s=long_s,
        seed=seed,
        directory=directory,
        resume=resume,
        json_file=json_file,
        document=RESULTS if document else None,
    )
    found = run_trio(partial(adaptation, options, saying(json_file)))
    return 1 if missed(found) else 0
