"""``srtm bench figures --real``: figures that two cores carry, on real brokers, beside the simulation of what these
recorded.

A broker is one server of the laboratory's service time, as fast as the simulated ones are. Where a batch is 10 and
groups fire together, time runs four times slower than in the paper (rates, service time, promise, spread), so that the
machine underneath matters less; bursts are the same. How many brokers a placement takes is found in simulation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.calibration import CLOSE, apart
from bench.document import MEASURED
from bench.experiments.fig09 import GROUP_SIZES
from bench.experiments.fig11 import GROUP_SIZE, SPREAD_MS
from bench.experiments.figure import About, Effort, Figure, Panel, Row, Series
from bench.experiments.layouts import BROKERS, PAPER, Envelope, envelope, fewest, ms, placed, run, split
from bench.experiments.publishing import Shown, make_directory, publish
from bench.live import record
from bench.recorded import Layout, Recorded
from bench.results import Results
from bench.simulator import Machine, worst
from bench.traffic import Fleet
from bench.verdict import Check, Verdict, within
from srtm.errors import BadInput
from srtm.poisson_bucket import mean_delay_s
from srtm.splitting import MICRO

SLOWER = 4
SLO_NS = SLOWER * 1_000_000
QUICK_S = 4.0
TRIES = 2  # of a run that does not count
_SAMPLED = 0.25
_DRAWS = 5
_SEARCH_S = 40.0  # of simulated traffic, to find how many brokers it takes
_SIZES = (GROUP_SIZES[1], GROUP_SIZES[3], GROUP_SIZES[-1])
_SPREADS_MS = (SPREAD_MS[0], SPREAD_MS[3], SPREAD_MS[-1])


@dataclass(frozen=True, kw_only=True)
class Point:
    """``strategies``: of placement, each a run. ``k``: brokers; None: the fewest that do. ``burst``: of the bucket,
    messages; None: as in section 6."""

    x: float
    fleet: Fleet
    strategies: tuple[str, ...]
    k: int | None = None
    burst: int | None = None

    @property
    def bucket(self) -> Envelope:
        """As in section 6; where publishers are periodic the largest of some draws, for their phases are the
        generator's own."""
        draws = range(1, _DRAWS + 1) if self.fleet.process == "periodic" else [1]
        sized = [envelope(replace(self.fleet, phase_seed=draw)) for draw in draws]
        burst_micro = max(one.burst_micro for one in sized) if self.burst is None else self.burst * MICRO
        return replace(sized[0], burst_micro=burst_micro)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What the picture shows: ``key`` of a row, and what is set beside it."""

    key: str = "p99_ms"
    beside: str = "simulated_p99_ms"
    beside_label: str = "simulated"
    label: str = "worst broker's p99 (ms, log scale)"
    promised: bool = True  # whether the promise is one about it


@dataclass(frozen=True, kw_only=True)
class RealFigure:
    title: str
    claim: str
    x_label: str
    points: Sequence[Point]
    checks: Callable[[Sequence[Row]], list[Check]]
    slo_ns: int
    y: Axis = Axis()

    @property
    def machine(self) -> Machine:
        """The laboratory's server: what a message takes of the simulated brokers' servers, all together."""
        fleet, scale = self.points[0].fleet, self.slo_ns / 1_000_000
        return Machine(message_ns=round(scale * PAPER.mean_ns(fleet.batch, 0) / PAPER.servers))


@dataclass(frozen=True, kw_only=True)
class RealOptions:
    names: Sequence[str]
    seconds: float = 12.0  # measured part of a run
    seed: int = 1
    directory: Path = Path("figures")
    document: bool = False


def _grows(rows: Sequence[Row]) -> list[Check]:
    p99 = [row["p99_ms"] for row in rows]
    text = " < ".join(f"{one:.3g}" for one in p99) + " ms"
    return [Check("p99 by k", text, "growing", p99 == sorted(p99))]


def _theory(rows: Sequence[Row]) -> list[Check]:
    """A run of seconds has few delays that know nothing of each other, the fewer the larger the bucket."""
    first = rows[0]
    return [
        within(
            f"mean access delay, b = {first['x']:g}", first["access_mean_ms"], first["theory_mean_ms"], _SAMPLED, "ms"
        )
    ]


def _srtm_wins(rows: Sequence[Row]) -> list[Check]:
    by = {(row["x"], row["strategy"]): row["p99_ms"] for row in rows}
    found = []
    for x in dict.fromkeys(row["x"] for row in rows):
        srtm, blind = by[x, "srtm"], by[x, "maxmin"]
        better = srtm <= (1 + CLOSE) * blind
        found.append(Check(f"{x:g}: SRTM against Max-Min", f"{srtm:.3g} against {blind:.3g} ms", "no worse", better))
    return found


def _slow(group_size: int, spread_ms: float = 0.0) -> Fleet:
    noise_ns = round(SLOWER * spread_ms * 1_000_000)
    return Fleet(
        count=1_000, rate=10.0 / SLOWER, process="periodic", batch=10, group_size=group_size, noise_ns=noise_ns
    )


BOTH = ("srtm", "maxmin")
REAL: dict[str, RealFigure] = {
    "fig06a": RealFigure(
        title="The DRL penalty on real brokers",
        claim="At low load p99 grows with the number of brokers; the simulator says by how much.",
        x_label="brokers",
        points=[Point(x=k, fleet=Fleet(count=1_000), strategies=("lb",), k=k) for k in range(1, BROKERS + 1)],
        checks=_grows,
        slo_ns=1_000_000,
    ),
    "eq01": RealFigure(
        title="Eq. (1) on a real broker",
        claim="The mean access delay of a real broker follows Eq. (1), as far as a run of seconds can tell.",
        x_label="burst b (messages)",
        points=[Point(x=burst, fleet=Fleet(count=1_000), strategies=("lb",), k=1, burst=burst) for burst in (1, 5, 25)],
        checks=_theory,
        slo_ns=1_000_000,
        y=Axis(
            key="access_mean_ms",
            beside="theory_mean_ms",
            beside_label="Eq. (1)",
            label="mean access delay (ms, log scale)",
            promised=False,
        ),
    ),
    "fig09b": RealFigure(
        title="Correlation on real brokers: Max-Min against SRTM",
        claim="SRTM is no worse than Max-Min for any group size; the simulator says by how much.",
        x_label="publishers in a group",
        points=[Point(x=size, fleet=_slow(size), strategies=BOTH) for size in _SIZES],
        checks=_srtm_wins,
        slo_ns=SLO_NS,
    ),
    "fig11": RealFigure(
        title="Imprecise correlation on real brokers: groups of 25",
        claim="SRTM is no worse than Max-Min whatever the spread; the simulator says by how much.",
        x_label="a group's firings are spread over (ms, four times slower)",
        points=[Point(x=spread, fleet=_slow(GROUP_SIZE, spread), strategies=BOTH) for spread in _SPREADS_MS],
        checks=_srtm_wins,
        slo_ns=SLO_NS,
    ),
}


def chosen(names: Sequence[str]) -> list[str]:
    """All, or those named. Raises BadInput."""
    for name in names:
        if name not in REAL:
            raise BadInput("real", name, f"must be one of {', '.join(REAL)}: two cores do not carry the others")
    return list(dict.fromkeys(names)) or list(REAL)


async def real(options: RealOptions, show: Callable[[str], None]) -> list[Verdict]:
    """Raises Unavailable, PeerError; BadInput for a directory that cannot be written."""
    make_directory(options.directory)
    path_ns = calibrated_path()
    return [await _one(name, REAL[name], path_ns, options, show) for name in options.names]


def calibrated_path() -> tuple[int, ...]:
    """Wake-up and write as the last documented calibration saw them; nothing before the first."""
    file = MEASURED / "calibration.json"
    if not file.exists():
        return (0,)
    return tuple(msgspec.json.decode(file.read_bytes(), type=Results).settings["lab_path_ns"])


async def _one(
    name: str, figure: RealFigure, path_ns: tuple[int, ...], options: RealOptions, show: Callable[[str], None]
) -> Verdict:
    started, rows, reasons = time.time(), [], []
    for point in figure.points:
        for strategy in point.strategies:
            layout = layout_of(figure, point, strategy, options.seed)
            recorded = await _counted(layout, options, ms(figure.slo_ns))
            row = row_of(point, strategy, layout, recorded, replace(figure.machine, path_ns=path_ns), options.seed)
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
    shown = Shown(name=about.name, about=about, figure=drawn, effort=effort, caption="real brokers, laboratory")
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
    lab_us = figure.machine.message_ns / 1_000
    return Layout(fleet=point.fleet, placement=placement, shares=shares, lab_us=lab_us)


async def _counted(layout: Layout, options: RealOptions, slo_ms: float) -> Recorded:
    """The first that counts, else the last."""
    for _ in range(TRIES):
        with TemporaryDirectory(prefix="srtm-real-") as folder:
            recorded = await record(
                layout, seconds=options.seconds, seed=options.seed, folder=Path(folder), slo_ms=slo_ms
            )
        if not recorded.reasons:
            break
    return recorded


def row_of(point: Point, strategy: str, layout: Layout, recorded: Recorded, machine: Machine, seed: int) -> Row:
    """Of the broker with the largest p99, measured; and of the one with the largest, simulated."""
    measured, simulated = worst([part.measured for part in recorded.parts]), worst(recorded.replayed(machine, seed))
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
        "residual": len(layout.used) * 1e9 / machine.message_ns - layout.fleet.load,
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


def conditions_of(figure: RealFigure) -> str:
    fleet = figure.points[0].fleet
    slower = "" if figure.slo_ns == 1_000_000 else f", {SLOWER} times slower than the paper"
    return (
        f"{fleet.count:,} publishers of {fleet.rate:g} msg/s, {fleet.process}, batch {fleet.batch}{slower}; lab "
        f"service time {figure.machine.message_ns / 1_000:.3g} us; SLO {ms(figure.slo_ns):g} ms; buckets in the rows"
    )


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
            "server time left, msg/s": "residual",
            "bucket": "bucket",
        },
        how="Real brokers beside the simulation of what they recorded, one run of {seconds:g} s a point",
    )
