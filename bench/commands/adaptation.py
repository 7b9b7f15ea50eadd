"""``srtm bench adaptation`` and the other commands about shares that follow the traffic: options and exit status."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.console.options import RunsJsonOption, SeedOption, saying
from bench.console.selection import chosen
from bench.experiments.overhead.run_all import overhead
from bench.experiments.overhead.turn import OverheadOptions
from bench.experiments.steps.demand import DemandOptions, demand
from bench.experiments.steps.run import COUNTED_S, MODES, SETTLING_S, STEPS, TAIL_S
from bench.experiments.steps.run_all import AdaptationOptions, adaptation
from bench.experiments.steps.steady import MOST_WATCHED_S, SteadyOptions, adaptation_steady
from bench.experiments.steps.table import missed
from bench.harness.results.document import ADAPTATION
from srtm.console.output import JsonOption
from srtm.console.running import run_trio

app = typer.Typer()

DocumentOption = Annotated[bool, typer.Option("--document", help="Write the table into docs/adaptation.md.")]


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
            help="Keep the runs that are there, of this seed and the same sources of what is measured; the table is of "
            "these, and of older ones of modes that were not run again, and says so.",
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
        document=ADAPTATION if document else None,
    )
    found = run_trio(partial(adaptation, options, saying(json_file)))
    return 1 if missed(found) else 0


@app.command("adaptation-steady")
def bench_adaptation_steady(
    pairs: Annotated[
        int, typer.Option(min=1, help="Of runs that count, one of each mode, in turns.")
    ] = SteadyOptions.pairs,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=MOST_WATCHED_S, help="Watched in each run.")
    ] = SteadyOptions.seconds,
    seed: SeedOption = SteadyOptions.seed,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """The worse of two real brokers while traffic stays at 10:90: fitted beside proportional. Eleven minutes.

    Status 0 if its p99 under fitted is at most a fifth of that under proportional.
    """
    options = SteadyOptions(pairs, seconds, seed, json_file, ADAPTATION if document else None)
    verdict = run_trio(partial(adaptation_steady, options, saying(json_file)))
    return 0 if verdict.reached else 1


@app.command("demand")
def bench_demand(
    hours: Annotated[int, typer.Option(min=1, max=24, help="From midnight on.")] = DemandOptions.hours,
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="In which an hour is played.")] = (
        DemandOptions.seconds
    ),
    seed: SeedOption = DemandOptions.seed,
    document: DocumentOption = False,
    json_file: JsonOption = None,
) -> int:
    """A day of demand that wanders between four brokers, at speed, under each mode. A simulation of some minutes.

    Status 0 if fitted delays least, and nothing ever lets more go than the envelope.
    """
    options = DemandOptions(hours, seconds, seed, json_file, ADAPTATION if document else None)
    return 0 if demand(options, saying(json_file)).reached else 1


@app.command("overhead")
def bench_overhead(
    topics: Annotated[int, typer.Option(min=2, help="On six brokers, each topic on all.")] = OverheadOptions.topics,
    moving: Annotated[int, typer.Option(min=1, help="Of these, where traffic moves.")] = OverheadOptions.moving,
    seconds: Annotated[float, typer.Option(min=5.0, help="Of a turn under a mode.")] = OverheadOptions.seconds,
    turns: Annotated[int, typer.Option(min=1, help="Of each mode.")] = OverheadOptions.turns,
    seed: SeedOption = OverheadOptions.seed,
    document: DocumentOption = False,
    json_file: JsonOption = None,
) -> int:
    """What following the traffic costs adaptor, distributor and brokers in processor time: fitted beside static.

    Some minutes on real brokers. Status 0 if it is less than 1 % of the machine's cores while traffic is steady.
    """
    options = OverheadOptions(
        topics=topics,
        moving=min(moving, topics // 2),
        seconds=seconds,
        turns=turns,
        seed=seed,
        json_file=json_file,
        document=ADAPTATION if document else None,
    )
    found = run_trio(partial(overhead, options, saying(json_file)))
    return 0 if found.reached else 1
