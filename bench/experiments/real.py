"""``srtm bench figures --real``: figures that two cores carry, on real brokers, beside the simulation of what these
recorded.

A broker is in the laboratory, with the service time of the simulated ones. How many brokers a placement takes is found
in simulation, once for all runs of a point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.experiments.lab.figure import About, Effort, Figure, Row
from bench.experiments.lab.layouts import fewest, loads_of, ms, placed, residual, run, split
from bench.experiments.lab.live_layout import record
from bench.experiments.lab.points import LABELS
from bench.experiments.lab.publishing import Shown, make_directory, publish
from bench.experiments.lab.stored_figure import Finished
from bench.experiments.lab.theory import close_enough, means, medians, tails
from bench.experiments.real_figures import REAL, Point, RealFigure, conditions_of
from bench.harness.load.run_files import runs_beside
from bench.harness.results.panels import Panel, Series
from bench.harness.results.publish import refuse_unpublishable
from bench.harness.results.sources import PRODUCT, SIMULATED
from bench.harness.results.verdict import Verdict
from bench.simulation.brokers import Machine, Tail
from bench.simulation.calibration import CLOSE
from bench.simulation.recorded import Layout, Recorded

QUICK_S = 4.0
_SEARCH_S = 40.0  # of simulated traffic, to find how many brokers it takes


@dataclass(frozen=True, kw_only=True)
class RealOptions:
    """``seconds``: measured part of a run; ``runs``: of each point, with seeds from ``seed`` on; None: as many as the
    figure takes."""

    names: Sequence[str]
    seconds: float | None = None
    runs: int | None = None
    seed: int = 1
    directory: Path = Path("figures")
    document: Path | None = None  # of pages, to write there as well

    def effort(self, figure: RealFigure) -> Effort:
        return Effort(
            seconds=figure.seconds if self.seconds is None else self.seconds,
            repetitions=figure.runs if self.runs is None else self.runs,
            seed=self.seed,
        )


async def real(options: RealOptions, show: Callable[[str], None]) -> list[Verdict]:
    """Raises Unavailable, PeerError; BadInput for a directory that cannot be written."""
    refuse_unpublishable(options.document)
    make_directory(options.directory)
    return [await _one(name, REAL[name], options, show) for name in options.names]


async def _one(name: str, figure: RealFigure, options: RealOptions, show: Callable[[str], None]) -> Verdict:
    started, effort = time.time(), options.effort(figure)
    made, about = Made(), about_of(name, figure, effort)
    with runs_beside(Finished(options.directory, about.name).data):
        for point in figure.points:
            for strategy in point.strategies:
                await _point(made, figure, point, strategy, effort, lambda text: show(f"{name}: {text}"))
    conditions, rows = conditions_of(figure), made.rows
    settings = {
        "seconds": effort.seconds,
        "repetitions": effort.repetitions,
        "simulated": False,
        "conditions": conditions,
    }
    checks = [*close_enough(made.rows), *figure.checks(rows)]
    reasons = [*made.reasons, *figure.untold(rows)]
    verdict = Verdict(f"{name}-real", figure.claim, checks, [*made.runs, *rows], settings, reasons)
    drawn = Figure(rows=rows, panels=panels(figure, rows), checks=checks, conditions=conditions)
    shown = Shown(name=about.name, about=about, figure=drawn, effort=effort)
    publish(shown, verdict, started, options.directory, options.document)
    show(verdict.line)
    return verdict


@dataclass(frozen=True, kw_only=True)
class Made:
    """``runs``: a row each; ``rows``: one a point and placement, that stands for its runs."""

    runs: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


async def _point(
    made: Made, figure: RealFigure, point: Point, strategy: str, effort: Effort, show: Callable[[str], None]
) -> None:
    sent = partial(record, slo_ms=ms(figure.slo_ns), keep_intended=figure.keep_intended, latest_ms=figure.latest_ms)
    recordings, rows = [], []
    k = brokers_of(figure, point, strategy, effort.seed)
    for seed in range(effort.seed, effort.seed + effort.repetitions):
        layout = layout_of(figure, point, strategy, k, seed)
        recorded = await sent(layout, seconds=effort.seconds, seed=seed, name=f"{point.x:g} {strategy} seed {seed}")
        recordings.append(recorded)
        rows.append(row_of(point, strategy, layout, recorded, figure.machine, seed, figure.slo_ns))
        made.reasons.extend(f"{point.x:g}, {strategy}, seed {seed}: {reason}" for reason in recorded.reasons)
        show(line(rows[-1]))
    made.runs.extend(rows)
    mean = means(recordings, point.fleet, point.bucket, effort.seconds)
    everywhere = Tail.of([part.measured for recorded in recordings for part in recorded.parts])
    made.rows.append({**medians(rows), **mean, "row": "point", "all_p99_ms": ms(everywhere.p99_ns)})


def brokers_of(figure: RealFigure, point: Point, strategy: str, seed: int) -> int:
    """As many as the point says; otherwise the fewest that keep the promise, simulated with the traffic of ``seed``."""
    if point.k is not None:
        return point.k
    attempt = partial(run, point.fleet, strategy, seconds=_SEARCH_S, seed=seed, machine=figure.machine)
    return fewest(attempt, 1, slo_ns=figure.slo_ns).k


def layout_of(figure: RealFigure, point: Point, strategy: str, k: int, seed: int) -> Layout:
    placement = placed(point.fleet, strategy, k, seed)
    shares = split(point.fleet, placement, k, point.bucket)
    return Layout(fleet=point.fleet, placement=placement, shares=shares, lab_us=figure.lab_us)


def row_of(
    point: Point, strategy: str, layout: Layout, recorded: Recorded, machine: Machine, seed: int, slo_ns: int
) -> Row:
    """Of one run."""
    loads = loads_of(layout.fleet, layout.placement, len(layout.shares))
    return {
        "row": "run",
        "x": point.x,
        "strategy": strategy,
        "seed": seed,
        "brokers": len(layout.used),
        **tails(recorded, machine, seed),
        "residual": residual(layout.fleet, strategy, loads, machine=machine, slo_ns=slo_ns),
        "bucket": point.bucket.text,
        "valid": not recorded.reasons,
    }


def line(row: Row) -> str:
    return (
        f"{row['x']:g}, {row['strategy']} on {row['brokers']}: p99 {row['p99_ms']:.3g} ms, simulated "
        f"{row['simulated_p99_ms']:.3g} ms{'' if row['valid'] else ' (does not count)'}"
    )


def panels(figure: RealFigure, rows: Sequence[Row]) -> list[Panel]:
    series = []
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        mine = [row for row in rows if row["strategy"] == strategy]
        x = [row["x"] for row in mine]
        notes = [str(row["brokers"]) for row in mine]
        label, y = LABELS[strategy], figure.y
        series.append(Series(label=f"{label}, real", x=x, y=[row[y.key] for row in mine], notes=notes))
        beside = [row[y.beside] for row in mine]
        series.append(Series(label=f"{label}, {y.beside_label}", x=x, y=beside, marks_only=True))
    return [
        Panel(
            title=figure.title,
            x_label=figure.x_label,
            y_label=figure.y.label,
            series=series,
            slo_ms=ms(figure.slo_ns) if figure.y.promised else None,
        )
    ]


def about_of(name: str, figure: RealFigure, effort: Effort) -> About:
    several = "medians of {repetitions} runs of {seconds:g} s a point; those of all brokers, and means, of all together"
    return About(
        name=f"{name}-real",
        title=figure.title,
        claim=figure.claim,
        columns={
            figure.x_label: "x",
            "placement": "strategy",
            "brokers": "brokers",
            "worst broker's p99, ms": "p99_ms",
            "of the runs": "p99_of_runs",
            "of all brokers, all runs": "all_p99_ms",
            "simulated": "simulated_p99_ms",
            "off, parts": "off",
            f"runs within {100 * CLOSE:g} %": "close_runs",
            "access p99, ms": "access_p99_ms",
            "simulated access": "simulated_access_p99_ms",
            "access off": "access_off",
            "processing p99, ms": "processing_p99_ms",
            "simulated processing": "simulated_processing_p99_ms",
            "processing off": "processing_off",
            "mean access, ms": "access_mean_ms",
            "± (95 %)": "access_mean_half_ms",
            "as meant to be sent, ms": "meant_mean_ms",
            "exactly, ms": "exact_mean_ms",
            "without the draw's chance, ms": "controlled_mean_ms",
            "its ± (95 %)": "controlled_half_ms",
            "± 5 % takes, s": "closely_s",
            "Eq. (1), ms": "theory_mean_ms",
            "capacity left, msg/s": "residual",
            "bucket": "bucket",
        },
        how="Real brokers beside the simulation of what they recorded",
        runs=several if effort.repetitions > 1 else "{repetitions} run of {seconds:g} s a point",
        full=RealOptions(names=[name]).effort(figure),
        sources=(*SIMULATED, *PRODUCT),
    )
