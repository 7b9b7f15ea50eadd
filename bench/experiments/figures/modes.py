"""The modes of the adaptor on a day whose demand wanders between four brokers: what each delays, and how many messages
it takes for it. The day is played at speed; the one bucket that all modes stand for is beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from adaptor.observations import Envelope, Shares
from bench.data.sensors import read_detectors
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.harness.results.intervals import percentile_ms
from bench.harness.results.panels import Panel, Series
from bench.harness.results.sources import SIMULATED
from bench.harness.results.verdict import Check, none_of
from bench.simulation import demand_day as day
from bench.simulation.broker_reports import under_mode
from bench.simulation.buckets import ONE_BUCKET, one_bucket
from srtm.token_bucket.bucket import TOKEN, conforms_due
from srtm.token_bucket.exact_split import split_bucket
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

BROKERS = 4
RATE, BURST = 11_000.0, 25.0
PART_OF_EFFORT = 1 / 3  # of a run's seconds is an hour played in
KINDS: dict[str, tuple[Mode, Adaptation]] = {
    "static": ("static", Adaptation()),
    "proportional": ("proportional", Adaptation()),
    "proportional, 2 s": ("proportional", Adaptation(window_s=2.0)),
    "fitted": ("fitted", Adaptation()),
    "gdrl": ("gdrl", Adaptation()),
    "central": ("central", Adaptation()),
}


@dataclass(frozen=True, kw_only=True)
class ModeRun:
    kind: str
    messages: int
    delayed: int
    delay_sum_s: float
    delay_p99_ms: float
    left_waiting: int  # when the day was over
    unused_missed: float  # tokens that spilled on one broker while messages waited on another
    control: int  # messages
    conforms: bool


def figure(effort: Effort) -> Figure:
    hour_s = PART_OF_EFFORT * effort.seconds
    runs = []
    for run in runs_of(day.HOURS, hour_s, effort.seed):
        effort.step(f"{run.kind}: {run.delay_p99_ms:,.3g} ms at p99")
        runs.append(run)
    length_s = day.HOURS * hour_s
    return Figure(
        rows=[_row(run, length_s) for run in runs],
        panels=[_panel(runs, length_s)],
        checks=checks(runs),
        conditions=f"{BROKERS} brokers, r = {RATE:,.0f}, b = {BURST:g}; {day.HOURS} hours, each in {hour_s:g} s",
    )


def runs_of(hours: int, hour_s: float, seed: int) -> Iterator[ModeRun]:
    """The same day under each mode, then of one bucket."""
    rates = day.demand(read_detectors(), BROKERS, hours, day.PEAK, seed)
    arrivals = day.arrivals(rates, hour_s, seed)
    envelope = Envelope(rate_micro=round(RATE * MICRO), burst_micro=round(BURST * MICRO))
    start = split_bucket(envelope.rate_micro, envelope.burst_micro, rates.mean(axis=1).tolist())
    ends_ns = round(hours * hour_s * SECOND_NS)
    for kind in KINDS:
        yield _run(kind, arrivals, envelope, start, ends_ns, seed)
    arrival, due = one_bucket(arrivals, envelope)
    left = int((due >= ends_ns).sum())
    yield _measured(ONE_BUCKET, arrival, due, envelope, left=left, missed=0.0, control=0)


def _run(kind: str, arrivals: Sequence[Ints], envelope: Envelope, start: Shares, ends_ns: int, seed: int) -> ModeRun:
    declared = [day.PEAK * rate / envelope.rate_micro for rate, _ in start]
    run = under_mode(*KINDS[kind], arrivals, envelope, start, declared, seed)
    run.run(ends_ns)
    left, missed = sum(broker.waiting for broker in run.brokers), run.missed / TOKEN
    return _measured(kind, *run.gone(ends_ns), envelope, left=left, missed=missed, control=run.messages)


def _measured(
    kind: str, arrival_ns: Ints, due_ns: Ints, envelope: Envelope, *, left: int, missed: float, control: int
) -> ModeRun:
    delay_ns = due_ns - arrival_ns
    return ModeRun(
        kind=kind,
        messages=len(delay_ns),
        delayed=int((delay_ns > 0).sum()),
        delay_sum_s=float(delay_ns.sum(dtype=np.float64)) / SECOND_NS,
        delay_p99_ms=percentile_ms(delay_ns, 99),
        left_waiting=left,
        unused_missed=missed,
        control=control,
        conforms=conforms_due(np.sort(due_ns).tolist(), envelope.rate_micro, envelope.burst_micro) is None,
    )


def checks(runs: Sequence[ModeRun]) -> list[Check]:
    """The default against the others, and the law for all."""
    (fitted,) = (run for run in runs if run.kind == "fitted")
    others = [run for run in runs if run.kind not in ("fitted", ONE_BUCKET)]
    least_sum = min(others, key=lambda run: run.delay_sum_s)
    least_p99 = min(others, key=lambda run: run.delay_p99_ms)
    return [
        Check(
            "sum of access delay under fitted",
            f"{fitted.delay_sum_s:,.0f} s",
            f"at most the other modes' least, {least_sum.delay_sum_s:,.0f} s ({least_sum.kind})",
            fitted.delay_sum_s <= least_sum.delay_sum_s,
        ),
        Check(
            "p99 access delay under fitted",
            f"{fitted.delay_p99_ms:.3g} ms",
            f"at most the other modes' least, {least_p99.delay_p99_ms:.3g} ms ({least_p99.kind})",
            fitted.delay_p99_ms <= least_p99.delay_p99_ms,
        ),
        none_of("modes that let more go than (r, b)", sum(not run.conforms for run in runs)),
    ]


def _row(run: ModeRun, length_s: float) -> Row:
    return {"name": run.kind, **asdict(run), "control_per_s": run.control / length_s}


def _panel(runs: Sequence[ModeRun], length_s: float) -> Panel:
    return Panel(
        title="What a mode delays, and what it says",
        x_label="control messages a second",
        y_label="p99 of access delay (ms, log scale)",
        series=[
            Series(label=run.kind, x=[run.control / length_s], y=[run.delay_p99_ms], marks_only=run.kind == ONE_BUCKET)
            for run in runs
        ],
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="modes",
    title="The modes of the adaptor on shifting demand",
    claim="fitted delays least of all modes; docs/adaptation.md says what each does.",
    columns={
        "mode": "kind",
        "messages delayed": "delayed",
        "sum of access delay, s": "delay_sum_s",
        "p99, ms": "delay_p99_ms",
        "left waiting at the end": "left_waiting",
        "tokens unused while messages waited elsewhere": "unused_missed",
        "control messages a second": "control_per_s",
    },
    run=figure,
    sources=("adaptor", *SIMULATED),
    runs="one day",
    full=Effort(repetitions=1),
)
