"""``srtm bench figures --real``: figures that two cores carry, on real brokers, beside the simulation of what these
recorded.

A broker is in the laboratory, with the service time of the simulated ones. How many brokers a placement takes is found
in simulation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.calibration import CLOSE, apart
from bench.experiments.figure import About, Effort, Figure, Panel, Row, Series
from bench.experiments.layouts import Envelope, fewest, loads_of, ms, placed, residual, run, split
from bench.experiments.publishing import Shown, make_directory, publish
from bench.experiments.real_figures import REAL, Point, RealFigure, conditions_of
from bench.live import record
from bench.recorded import Layout, Recorded
from bench.simulator import Machine, worst
from bench.traffic import Fleet
from bench.verdict import Check, Verdict
from srtm.poisson_bucket import mean_delay_s
from srtm.splitting import MICRO

QUICK_S = 4.0
TRIES = 2  # of a run that does not count
_SEARCH_S = 40.0  # of simulated traffic, to find how many brokers it takes


@dataclass(frozen=True, kw_only=True)
class RealOptions:
    names: Sequence[str]
    seconds: float = 12.0  # measured part of a run
    seed: int = 1
    directory: Path = Path("figures")
    document: bool = False


async def real(options: RealOptions, show: Callable[[str], None]) -> list[Verdict]:
    """Raises Unavailable, PeerError; BadInput for a directory that cannot be written."""
    make_directory(options.directory)
    return [await _one(name, REAL[name], options, show) for name in options.names]


async def _one(name: str, figure: RealFigure, options: RealOptions, show: Callable[[str], None]) -> Verdict:
    started, rows, reasons = time.time(), [], []
    for point in figure.points:
        for strategy in point.strategies:
            layout = layout_of(figure, point, strategy, options.seed)
            recorded = await _counted(layout, figure, options)
            row = row_of(point, strategy, layout, recorded, figure.machine, options.seed, figure.slo_ns)
            rows.append(row)
            reasons += [f"{point.x:g}, {strategy}: {reason}" for reason in recorded.reasons]
            show(f"{name}: {line(row)}")
    checks = [*close_enough(rows), *figure.checks(rows)]
    conditions = conditions_of(figure)
    settings = {"seconds": options.seconds, "simulated": False, "conditions": conditions}
    verdict = Verdict(f"{name}-real", figure.claim, checks, [dict(row) for row in rows], settings, reasons)
    drawn = Figure(rows=rows, panels=panels(figure, rows), checks=checks, conditions=conditions)
    about = about_of(name, figure)
    effort = Effort(seconds=options.seconds, repetitions=1, seed=options.seed)
    shown = Shown(name=about.name, about=about, figure=drawn, effort=effort)
    publish(shown, verdict, started, options.directory, document=options.document)
    show(verdict.line)
    return verdict


def layout_of(figure: RealFigure, point: Point, strategy: str, seed: int) -> Layout:
    k = point.k
    if k is None:
        attempt = partial(run, point.fleet, strategy, seconds=_SEARCH_S, seed=seed, machine=figure.machine)
        k = fewest(attempt, 1, slo_ns=figure.slo_ns).k
    placement = placed(point.fleet, strategy, k, seed)
    shares = split(point.fleet, placement, k, point.bucket)
    return Layout(fleet=point.fleet, placement=placement, shares=shares, lab_us=figure.lab_us)


async def _counted(layout: Layout, figure: RealFigure, options: RealOptions) -> Recorded:
    """The first that counts, else the last."""
    for _ in range(TRIES):
        with TemporaryDirectory(prefix="srtm-real-") as folder:
            recorded = await record(
                layout, seconds=options.seconds, seed=options.seed, folder=Path(folder), slo_ms=ms(figure.slo_ns)
            )
        if recorded.late_max_ms > figure.latest_ms:
            stop = f"the generator was {recorded.late_max_ms:.3g} ms late once, more than {figure.latest_ms:g} ms"
            recorded = replace(recorded, reasons=[*recorded.reasons, stop])
        if not recorded.reasons:
            break
    return recorded


def row_of(
    point: Point, strategy: str, layout: Layout, recorded: Recorded, machine: Machine, seed: int, slo_ns: int
) -> Row:
    """Of the broker with the largest p99, measured; and of the one with the largest, simulated."""
    measured, simulated = worst([part.measured for part in recorded.parts]), worst(recorded.replayed(machine, seed))
    loads = loads_of(layout.fleet, layout.placement, len(layout.shares))
    return {
        "x": point.x,
        "strategy": strategy,
        "brokers": len(layout.used),
        "p99_ms": ms(measured.p99_ns),
        "simulated_p99_ms": ms(simulated.p99_ns),
        "off": apart(simulated.p99_ns, measured.p99_ns),
        "access_p99_ms": ms(measured.access_p99_ns),
        "processing_p99_ms": ms(measured.processing_p99_ns),
        "access_mean_ms": recorded.measured.access_mean_ns / 1e6,
        "theory_mean_ms": theory_ms(point.fleet, point.bucket, len(layout.used)),
        "residual": residual(layout.fleet, strategy, loads, machine=machine, slo_ns=slo_ns),
        "bucket": point.bucket.text,
        "valid": not recorded.reasons,
    }


def theory_ms(fleet: Fleet, bucket: Envelope, k: int) -> float | None:
    """Eq. (1) for each of ``k`` equal parts; None where messages depend on each other."""
    if (fleet.process, fleet.batch, fleet.group_size) != ("poisson", 1, 1):
        return None
    rate, burst = bucket.rate_micro / MICRO / k, max(1, bucket.burst_micro // MICRO // k)
    return 1_000 * mean_delay_s(fleet.load / k, rate, burst)


def line(row: Row) -> str:
    return (
        f"{row['x']:g}, {row['strategy']} on {row['brokers']}: p99 {row['p99_ms']:.3g} ms, simulated "
        f"{row['simulated_p99_ms']:.3g} ms{'' if row['valid'] else ' (does not count)'}"
    )


def close_enough(rows: Sequence[Row]) -> list[Check]:
    near = sum(row["off"] <= CLOSE for row in rows)
    bound = f"{len(rows)}, within {100 * CLOSE:g} %"
    return [Check("runs whose p99 the simulator told", f"{near}", bound, near == len(rows))]


def panels(figure: RealFigure, rows: Sequence[Row]) -> list[Panel]:
    labels = {"lb": "LB", "maxmin": "Max-Min", "srtm": "SRTM"}
    series = []
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        mine = [row for row in rows if row["strategy"] == strategy]
        x = [row["x"] for row in mine]
        notes = [str(row["brokers"]) for row in mine]
        label, y = labels[strategy], figure.y
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


def about_of(name: str, figure: RealFigure) -> About:
    return About(
        name=f"{name}-real",
        title=figure.title,
        claim=figure.claim,
        columns={
            figure.x_label: "x",
            "placement": "strategy",
            "brokers": "brokers",
            "worst broker's p99, ms": "p99_ms",
            "simulated": "simulated_p99_ms",
            "off, parts": "off",
            "access p99, ms": "access_p99_ms",
            "processing p99, ms": "processing_p99_ms",
            "mean access, ms": "access_mean_ms",
            "Eq. (1), ms": "theory_mean_ms",
            "capacity left, msg/s": "residual",
            "bucket": "bucket",
        },
        how="Real brokers beside the simulation of what they recorded",
        runs="one run of {seconds:g} s a point",
        full=Effort(seconds=RealOptions.seconds, repetitions=1),
    )
