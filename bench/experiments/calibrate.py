"""``srtm bench calibrate``: the simulator's parameters from runs of real brokers, judged on other runs of them.

In the laboratory a virtual server follows the broker's own work, of 500 us or of what the figures emulate (at their
pace or slowed down), so that what is compared is the simulator and not the machine underneath; without it, processing
is the machine's wake-ups, and what is seen is shown without a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from bench.experiments.lab.layouts import HEADROOM, LAB_US, SLOW_US, SLOWER, Envelope, ms, placed, split
from bench.experiments.lab.live_layout import record
from bench.harness.results.page import Page, Picture, Table
from bench.harness.results.panels import Panel, Series, draw
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import hand_over, refuse_unpublishable
from bench.harness.results.results import Results
from bench.harness.results.sources import PRODUCT, SIMULATED
from bench.harness.results.verdict import Verdict
from bench.simulation.calibration import CLOSE, Compared, Fitted, compared, fit, keep, text
from bench.simulation.recorded import Layout, Recorded
from bench.simulation.traffic import Fleet
from srtm.errors import BadInput
from srtm.units import MICRO

BLOCK = "calibration"
SLOWED_US = SLOWER * LAB_US
CLAIM = "Simulated p99s of access and processing, each apart, are within 15 % of those of real brokers."
SLO_MS = 10.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """``burst``: messages, of the whole topic."""

    fleet: Fleet
    burst: int
    k: int = 1
    lab_us: float = SLOW_US

    @property
    def name(self) -> str:
        fleet = self.fleet
        groups = f", groups of {fleet.group_size}" if fleet.group_size > 1 else ""
        where = f"lab {self.lab_us:g} us, k = {self.k}" if self.lab_us else f"k = {self.k}"
        return (
            f"{where}: {fleet.count:,} x {fleet.rate:g} msg/s, {fleet.process}, batch {fleet.batch}{groups}, "
            f"b = {self.burst}"
        )

    def layout(self, seed: int) -> Layout:
        placement = placed(self.fleet, "srtm", self.k, seed)
        bucket = Envelope(rate_micro=round(HEADROOM * self.fleet.load * MICRO), burst_micro=self.burst * MICRO)
        shares = split(self.fleet, placement, self.k, bucket)
        return Layout(fleet=self.fleet, placement=placement, shares=shares, lab_us=self.lab_us)


def _slow(count: int, **traffic: Any) -> Fleet:
    """For the laboratory, where a broker carries 2,000 msg/s."""
    return Fleet(count=count, rate=4.0, **traffic)


def _slowed(**traffic: Any) -> Fleet:
    """As the figures on real brokers have messages that come in batches."""
    return Fleet(count=1_000, rate=10.0 / SLOWER, **traffic)


FITTED_ON = (
    Case(fleet=_slow(250), burst=15),
    Case(fleet=_slow(300, batch=10), burst=80),
    Case(fleet=Fleet(count=1_000), burst=25, lab_us=LAB_US),
    Case(fleet=Fleet(count=1_000), burst=12, lab_us=LAB_US),
    Case(fleet=Fleet(count=1_000), burst=40, k=3, lab_us=LAB_US),
    Case(fleet=_slowed(), burst=12, lab_us=SLOWED_US),
    Case(fleet=_slowed(), burst=30, k=3, lab_us=SLOWED_US),
    Case(fleet=Fleet(count=1_000, batch=10), burst=250, lab_us=LAB_US),
    Case(fleet=Fleet(count=1_000, batch=10, group_size=5), burst=1_400, lab_us=LAB_US),
    Case(fleet=_slowed(batch=10), burst=100, lab_us=SLOWED_US),
    Case(fleet=_slowed(process="periodic", batch=10, group_size=5), burst=700, k=2, lab_us=SLOWED_US),
    Case(fleet=_slowed(process="periodic", batch=10, group_size=10, noise_ns=20_000_000), burst=700, lab_us=SLOWED_US),
    Case(fleet=Fleet(count=3_000), burst=40, lab_us=0),
    Case(fleet=Fleet(count=1_000), burst=15, lab_us=0),
    Case(fleet=Fleet(count=300, rate=100.0), burst=40, lab_us=0),
    Case(fleet=Fleet(count=1_000, batch=10), burst=150, lab_us=0),
    Case(fleet=Fleet(count=400, rate=100.0, batch=50), burst=2_000, lab_us=0),
    Case(fleet=Fleet(count=500, batch=10, group_size=5), burst=400, lab_us=0),
)
JUDGED_ON = (
    Case(fleet=_slow(320), burst=10),
    Case(fleet=_slow(440), burst=12),
    Case(fleet=_slow(350, batch=5), burst=40),
    Case(fleet=_slow(200, batch=20), burst=100),
    Case(fleet=_slow(800), burst=30, k=2),
    Case(fleet=_slow(900, batch=5), burst=90, k=3),
    Case(fleet=_slow(300, batch=2, group_size=10), burst=80, k=2),
    Case(fleet=_slow(350, process="periodic", batch=10), burst=40),
    Case(fleet=Fleet(count=1_000, batch=10, group_size=10), burst=600, lab_us=LAB_US),
    Case(fleet=Fleet(count=1_000, process="periodic", batch=10, group_size=20), burst=1_000, k=2, lab_us=LAB_US),
    Case(fleet=_slowed(), burst=20, k=2, lab_us=SLOWED_US),
    Case(fleet=_slowed(process="periodic", batch=10, group_size=10), burst=900, k=2, lab_us=SLOWED_US),
    Case(fleet=Fleet(count=800), burst=10, lab_us=0),
    Case(fleet=Fleet(count=1_000, batch=5), burst=100, k=2, lab_us=0),
    Case(fleet=Fleet(count=1_000, batch=10, group_size=10), burst=600, lab_us=0),
)


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    seconds: float = 15.0  # measured part of each run
    seed: int = 1
    json_file: str | None = None
    png: Path | None = None
    document: Path | None = None  # of pages, to write there as well


@dataclass(frozen=True, kw_only=True)
class Judged:
    case: Case
    found: Compared
    reasons: list[str]  # why the run does not count

    def row(self) -> dict[str, Any]:
        found = self.found
        return {
            "name": self.case.name,
            "lab_us": self.case.lab_us,
            "k": self.case.k,
            "messages": found.measured.count,
            "access_p99_ms": ms(found.measured.access_p99_ns),
            "simulated_access_p99_ms": ms(found.simulated.access_p99_ns),
            "access_off": found.access_off,
            "processing_p99_ms": ms(found.measured.processing_p99_ns),
            "simulated_processing_p99_ms": ms(found.simulated.processing_p99_ns),
            "processing_off": found.processing_off,
            "close": found.close,
            "valid": not self.reasons,
            "reasons": self.reasons,
        }


@dataclass(frozen=True)
class Basis:
    """The runs to fit on: those that count."""

    runs: Sequence[tuple[Case, Recorded]]

    @property
    def counting(self) -> list[tuple[Case, Recorded]]:
        return [(case, recorded) for case, recorded in self.runs if not recorded.reasons]

    @property
    def left_out(self) -> int:
        return len(self.runs) - len(self.counting)

    @property
    def doubts(self) -> list[str]:
        """Why the others do not count."""
        return [f"{case.name}: {reason}" for case, recorded in self.runs for reason in recorded.reasons]

    def fit(self, seed: int) -> Fitted:
        """Raises BadInput where too few runs count, with what is wrong with the others."""
        try:
            return fit([(case.layout(seed), recorded) for case, recorded in self.counting])
        except BadInput as error:
            if not self.doubts:
                raise
            rule = f"{error.rule}; {self.left_out} did not count: {'; '.join(self.doubts)}"
            raise BadInput(error.field, error.value, rule) from error


async def calibrate(options: CalibrateOptions, show: Callable[[str], None]) -> Verdict:
    """All runs, the parameters, the table. Raises Unavailable, PeerError, BadInput."""
    refuse_unpublishable(options.document)
    started = time.time()
    basis = Basis([(case, await _recorded(case, options, options.seed, show)) for case in FITTED_ON])
    fitted = basis.fit(options.seed)
    show(f"parameters: {text(fitted)}")
    judged = []
    for case in JUDGED_ON:
        seed = options.seed + 1
        recorded = await _recorded(case, options, seed, show)
        machine = fitted.of(case.layout(seed))
        judged.append(Judged(case=case, found=compared(case.name, recorded, machine, seed), reasons=recorded.reasons))
    verdict = judge(judged, options)
    page = page_of(fitted, basis, judged, options, verdict, started)
    show(f"{page.text}\n\n{verdict.line}")
    results = results_of(options, fitted, basis, verdict, started)
    if options.png is not None:
        await trio.to_thread.run_sync(draw, options.png, panels(judged), _CAPTION)
    if options.document is not None:
        keep(fitted)
        await trio.to_thread.run_sync(draw, options.document / f"{BLOCK}.png", panels(judged), _CAPTION)
    hand_over(page, results, name=BLOCK, folder=options.document, json_file=options.json_file)
    return verdict


async def _recorded(case: Case, options: CalibrateOptions, seed: int, show: Callable[[str], None]) -> Recorded:
    recorded = await record(case.layout(seed), seconds=options.seconds, seed=seed, slo_ms=SLO_MS, name=case.name)
    tail, state = recorded.measured, "".join(f"; does not count: {reason}" for reason in recorded.reasons)
    show(
        f"{case.name}: p99 access {ms(tail.access_p99_ns):.3g} ms, processing {ms(tail.processing_p99_ns):.3g} ms, "
        f"{recorded.cpu_us:.3g} us of processor a message{state}"
    )
    return recorded


def judge(judged: Sequence[Judged], options: CalibrateOptions) -> Verdict:
    """By the runs in the laboratory."""
    lab = [one for one in judged if one.case.lab_us]
    return Verdict(
        BLOCK,
        CLAIM,
        [one.found.check() for one in lab],
        [one.row() for one in judged],
        {
            "seconds": options.seconds,
            "lab_service_time_us": [SLOW_US, SLOWED_US, LAB_US],
            "slo_ms": SLO_MS,
            "close": CLOSE,
        },
        [f"{one.case.name}: {reason}" for one in lab for reason in one.reasons],
    )


def page_of(
    fitted: Fitted,
    basis: Basis,
    judged: Sequence[Judged],
    options: CalibrateOptions,
    verdict: Verdict,
    started: float,
) -> Page:
    counting = [case for case, _ in basis.counting]
    how = (
        f"Fitted on {len(counting)} runs of {options.seconds:g} s, of which {sum(not c.lab_us for c in counting)} "
        f"without the laboratory's service time of {SLOW_US:g}, {SLOWED_US:g} or {LAB_US:g} us: {text(fitted)}. Judged "
        "on other runs, whose recorded arrivals were simulated; those without the laboratory are shown, not judged. "
        "p99s in ms; "
        f"r = {HEADROOM:g} times the load, b as each run says."
    )
    left_out = [f"{basis.left_out} more did not count: {'; '.join(basis.doubts)}."] if basis.doubts else []
    return Page(
        title="The simulator against real brokers",
        claim=CLAIM,
        verdict=f"{verdict.line}.",
        body=[Picture(file=f"{BLOCK}.png", about=CLAIM), how, *left_out, table(judged)],
        sources=[*SIMULATED, *PRODUCT],
        origin=Origin.here(started),
    )


def table(judged: Sequence[Judged]) -> Table:
    header = ["run", "access", "simulated", "off", "processing", "simulated", "off", "within 15 %"]
    return Table(header=header, rows=[_cells(one) for one in judged])


def _cells(one: Judged) -> list[str]:
    row = one.row()
    numbers = []
    for kind in ("access", "processing"):
        numbers += [f"{row[f'{kind}_p99_ms']:.3g}", f"{row[f'simulated_{kind}_p99_ms']:.3g}"]
        numbers.append(f"{100 * row[f'{kind}_off']:.1f} %")
    state = "does not count" if one.reasons else "yes" if one.found.close else "**no**"
    return [one.case.name, *numbers, state if one.case.lab_us else f"({state})"]


def panels(judged: Sequence[Judged]) -> list[Panel]:
    rows = [one.row() for one in judged]
    number = list(range(1, len(rows) + 1))
    return [
        Panel(
            title=f"p99 of {kind}",
            x_label="run, in the order of the table",
            y_label="p99 (ms, log scale)",
            series=[
                Series(label="simulated", x=number, y=[row[f"simulated_{kind}_p99_ms"] for row in rows]),
                Series(label="measured", x=number, y=[row[f"{kind}_p99_ms"] for row in rows], marks_only=True),
            ],
            slo_ms=None,
        )
        for kind in ("access", "processing")
    ]


_CAPTION = "real brokers beside the simulation of what they recorded; lab: with its service time"


def results_of(options: CalibrateOptions, fitted: Fitted, basis: Basis, verdict: Verdict, started: float) -> Results:
    settings = {
        **verdict.settings,
        "parameters": text(fitted),
        "fitted_on": len(basis.counting),
        "not_fitted_on": basis.left_out,
        "doubts": basis.doubts,
    }
    return Results.of_verdicts(f"bench {BLOCK}", [verdict], seed=options.seed, started=started, settings=settings)
