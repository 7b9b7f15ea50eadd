"""Which figures two cores carry on real brokers, and what is asked of each.

Time runs ``SLOWER`` times slower than in the paper (rates, service time, promise, spread), so that the machine
underneath matters less; bursts are the same. Where messages come one by one it runs ``ALONE_SLOWER`` times slower. In
Fig. 6a, whose brokers are nearly idle, wake-ups are most of what a message takes of them. In Eq. (1), a machine that
stops for 10 ms bunches the arrivals of that time: at the paper's pace 100, four times what the largest bucket holds;
and its server is that of the calibration's slow runs, since it is about access alone: what tokens release one by one
takes less to wake up for than what comes at random, which a server of 72 us does not hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.experiments.figures.fig09 import GROUP_SIZES
from bench.experiments.figures.fig11 import GROUP_SIZE, SPREAD_MS
from bench.experiments.lab.figure import Row
from bench.experiments.lab.layouts import BROKERS, LAB_US, SLOW_US, SLOWER, Envelope, envelope, ms
from bench.experiments.lab.theory import CLOSELY
from bench.harness.results.batch_means import Mean
from bench.harness.results.verdict import Check
from bench.simulation.brokers import Machine
from bench.simulation.calibration import CLOSE, calibrated
from bench.simulation.traffic import Fleet
from srtm.units import MICRO

SLO_NS = SLOWER * 1_000_000
STOP_MS = 10.0  # a hundred messages at once, drained in a tenth of a second: a few thousandths of a run
ALONE_SLOWER = 8  # the same of messages that come one by one
_EXACT = 0.02  # as in the simulated figure
_TELLING = 0.5  # a wider interval holds nearly anything
_SEEN = 0.5  # of the batches
_DRAWS = 5
_ALONE = Fleet(count=1_000, rate=10.0 / ALONE_SLOWER)
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
    seconds: float = 12.0  # measured part of a run
    runs: int = 1  # of a point
    untold: Callable[[Sequence[Row]], list[str]] = lambda _: []  # why its rows, though valid, do not decide the claim
    keep_intended: bool = False
    some: str = ""  # which of the paper's points it has
    own_lab_us: float | None = None  # of the laboratory's server, where it is not that of the paper's pace
    latest_ms: float = math.inf  # of the generator: what it holds back for longer is no Poisson traffic

    @property
    def slower(self) -> int:
        """Times than in the paper, whose promise is 1 ms."""
        return self.slo_ns // 1_000_000

    @property
    def lab_us(self) -> float:
        """The laboratory's service time: if not its own, that of the simulated brokers, as many times slower."""
        return LAB_US * self.slower if self.own_lab_us is None else self.own_lab_us

    @property
    def machine(self) -> Machine:
        return calibrated().laboratory(self.lab_us)


def _grows(rows: Sequence[Row]) -> list[Check]:
    """Of all brokers and runs of a point together: the worst broker's of one run is mostly chance."""
    p99 = [row["all_p99_ms"] for row in rows]
    text = ", ".join(f"{one:.3g}" for one in p99) + " ms"
    return [Check("p99 by k, all brokers and runs", text, "growing", p99 == sorted(p99))]


def _theory(rows: Sequence[Row]) -> list[Check]:
    """Exact for b = 1, within 5 % for b = 5 and 25; or as far as the runs' own interval allows."""
    found = []
    for row in rows:
        mean, half, theory = row["controlled_mean_ms"], row["controlled_half_ms"], row["theory_mean_ms"]
        part = _EXACT if row["x"] == 1 else CLOSELY
        bound = f"{theory:.3g} ms ± {100 * part:g} %, or in the 95 % interval"
        near = abs(mean - theory) <= max(part * theory, half)
        found.append(Check(f"mean access delay, b = {row['x']:g}", f"{Mean(mean, half)} ms", bound, near))
    return found


def _untold(rows: Sequence[Row]) -> list[str]:
    """Means of delays too rare for so short a run."""
    found = []
    for row in rows:
        half, theory, seen = row["controlled_half_ms"], row["theory_mean_ms"], row["access_seen"]
        if seen < _SEEN:
            found.append(f"b = {row['x']:g}: {100 * seen:.0f} % of the batches have any delay, too few for their mean")
        elif half > _TELLING * theory:
            found.append(
                f"b = {row['x']:g}: its mean access delay is known to ± {100 * half / theory:.0f} % alone, "
                f"± {100 * CLOSELY:g} % takes {row['closely_s']:,.0f} s"
            )
    return found


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


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:-1]) + f" and {values[-1]:g}"


BOTH = ("srtm", "maxmin")
_WHY = "each a run for itself: up to six brokers, generator and subscribers share two cores"
REAL: dict[str, RealFigure] = {
    "fig06a": RealFigure(
        title="The DRL penalty on real brokers",
        claim="At low load p99 grows with the number of brokers; the simulator says by how much.",
        x_label="brokers",
        points=[Point(x=k, fleet=_ALONE, strategies=("lb",), k=k) for k in range(1, BROKERS + 1)],
        checks=_grows,
        slo_ns=ALONE_SLOWER * 1_000_000,
        seconds=48.0,
        runs=3,
        latest_ms=ALONE_SLOWER * STOP_MS,
    ),
    "eq01": RealFigure(
        title="Eq. (1) on a real broker",
        claim="The mean access delay of a real broker follows Eq. (1): exactly for b = 1, within 5 % for b = 5 and 25.",
        x_label="burst b (messages)",
        points=[Point(x=burst, fleet=_ALONE, strategies=("lb",), k=1, burst=burst) for burst in (1, 5, 25)],
        checks=_theory,
        untold=_untold,
        slo_ns=ALONE_SLOWER * 1_000_000,
        seconds=120.0,
        runs=3,
        keep_intended=True,
        own_lab_us=SLOW_US,
        latest_ms=ALONE_SLOWER * STOP_MS,
        y=Axis(
            key="controlled_mean_ms",
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
        some=f"{_listed(_SIZES)} of the paper's {len(GROUP_SIZES)} group sizes, {_WHY}",
        checks=_srtm_wins,
        slo_ns=SLO_NS,
        runs=3,
    ),
    "fig11": RealFigure(
        title="Imprecise correlation on real brokers: groups of 25",
        claim="SRTM is no worse than Max-Min whatever the spread; the simulator says by how much.",
        x_label=f"a group's firings are spread over (ms, here {SLOWER} times as long)",
        points=[Point(x=spread, fleet=_slow(GROUP_SIZE, spread), strategies=BOTH) for spread in _SPREADS_MS],
        some=f"{_listed(_SPREADS_MS)} ms of the paper's {len(SPREAD_MS)} spreads, {_WHY}",
        checks=_srtm_wins,
        slo_ns=SLO_NS,
        runs=5,
    ),
}


def conditions_of(figure: RealFigure) -> str:
    fleet = figure.points[0].fleet
    slower = "" if figure.slower == 1 else f", {figure.slower} times slower than the paper"
    some = f"{figure.some}; " if figure.some else ""
    return (
        f"{some}{fleet.count:,} publishers of {fleet.rate:g} msg/s, {fleet.process}, batch {fleet.batch}{slower}; lab "
        f"service time {figure.lab_us:g} us; SLO {ms(figure.slo_ns):g} ms; buckets in the rows"
    )
