"""``srtm bench demand``: a day whose demand wanders between brokers, at speed, under each mode. A simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adaptor.observations import Envelope, Shares
from bench.data.sensors import read_detectors
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.harness.cluster_runs.trace import percentile_ms
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from bench.harness.results.verdict import Check, Verdict
from bench.simulation import demand_day as day
from bench.simulation.broker_reports import under_mode
from bench.simulation.buckets import ONE_BUCKET, one_bucket
from srtm.token_bucket.bucket import TOKEN, conforms_due
from srtm.token_bucket.exact_split import split_bucket
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

BROKERS = 4
RATE, BURST = 11_000.0, 25.0
PEAK = 10_000.0  # msg/s
BLOCK = "demand"
KINDS: dict[str, tuple[Mode, Adaptation]] = {
    "static": ("static", Adaptation()),
    "proportional": ("proportional", Adaptation()),
    "proportional, 2 s": ("proportional", Adaptation(window_s=2.0)),
    "fitted": ("fitted", Adaptation()),
    "gdrl": ("gdrl", Adaptation()),
    "central": ("central", Adaptation()),
}


@dataclass(frozen=True)
class DemandOptions:
    hours: int = day.HOURS
    seconds: float = 10.0  # in which an hour is played
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True, kw_only=True)
class DemandRun:
    kind: str
    messages: int
    delayed: int
    delay_sum_s: float
    delay_p99_ms: float
    left_waiting: int  # when the day was over
    unused_missed: float  # tokens that spilled on one broker while messages waited on another
    control: int  # messages
    conforms: bool

    def row(self) -> dict[str, Any]:
        return {"name": self.kind, **asdict(self)}


def demand(options: DemandOptions, show: Callable[[str], None]) -> Verdict:
    """All modes on the same day, then the one bucket that they stand for; each is told of when it is over."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    rates = day.demand(read_detectors(), BROKERS, options.hours, PEAK, options.seed)
    runs = []
    for run in runs_of(options, rates):
        show(f"{run.kind}: {run.delay_p99_ms:,.3g} ms at p99")
        runs.append(run)
    verdict = judged(runs)
    text = f"{claim(options, rates)}\n\n{markdown(runs)}\n\n{verdict.line}."
    show(text)
    settings = {"hours": options.hours, "seconds": options.seconds, "brokers": BROKERS, "rate": RATE, "burst": BURST}
    results = Results.of_verdicts("bench demand", [verdict], seed=options.seed, started=started, settings=settings)
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file, data=True)
    return verdict


def runs_of(options: DemandOptions, rates: day.Floats) -> Iterator[DemandRun]:
    """Under each mode, then of one bucket."""
    arrivals = day.arrivals(rates, options.seconds, options.seed)
    envelope = Envelope(rate_micro=round(RATE * MICRO), burst_micro=round(BURST * MICRO))
    start = split_bucket(envelope.rate_micro, envelope.burst_micro, rates.mean(axis=1).tolist())
    ends_ns = round(options.hours * options.seconds * SECOND_NS)
    for kind in KINDS:
        yield run_once(kind, arrivals, envelope, start, ends_ns, options.seed)
    yield _one_bucket(arrivals, envelope, ends_ns)


def run_once(
    kind: str, arrivals: Sequence[Ints], envelope: Envelope, start: Shares, ends_ns: int, seed: int
) -> DemandRun:
    declared = [PEAK * rate / envelope.rate_micro for rate, _ in start]
    run = under_mode(*KINDS[kind], arrivals, envelope, start, declared, seed)
    run.run(ends_ns)
    left, missed = sum(broker.waiting for broker in run.brokers), run.missed / TOKEN
    return _measured(kind, *run.gone(ends_ns), envelope, left=left, missed=missed, control=run.messages)


def judged(runs: Sequence[DemandRun]) -> Verdict:
    """The default against the others, and the law for all."""
    by_kind = {run.kind: run for run in runs}
    fitted = by_kind["fitted"]
    others = [run for run in runs if run.kind not in ("fitted", ONE_BUCKET)]
    least_sum = min(others, key=lambda run: run.delay_sum_s)
    least_p99 = min(others, key=lambda run: run.delay_p99_ms)
    checks = [
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
    ]
    reasons = [f"{run.kind} let more go than (r, b)" for run in runs if not run.conforms]
    return Verdict(BLOCK, "fitted delays least of all modes", checks, [run.row() for run in runs], {}, reasons)


def claim(options: DemandOptions, rates: day.Floats) -> str:
    parts = 100 * rates / rates.sum(axis=0)
    spans = ", ".join(
        f"{low:.0f} to {high:.0f} %" for low, high in zip(parts.min(axis=1), parts.max(axis=1), strict=True)
    )
    total = rates.sum(axis=0)
    return (
        f"{options.hours} hours from midnight, each played in {options.seconds:g} s, on {BROKERS} brokers; "
        f"r = {RATE:,.0f}, b = {BURST:g}; from {total.min():,.0f} to {total.max():,.0f} msg/s in all, of which the "
        f"brokers get {spans}. At first, and always under static, shares in proportion to the mean of that time, as if "
        f"{PEAK:,.0f} msg/s had been declared in that proportion. Simulated: "
        "exact buckets, brokers' own reports, 20 ms to the adaptor, 10 and 20 ms back, 10 ms from broker to broker. "
        "What waits at the end goes under the last shares."
    )


def markdown(runs: Sequence[DemandRun]) -> str:
    header = [
        "mode",
        "messages delayed",
        "sum of access delay, s",
        "p99, ms",
        "left waiting at the end",
        "tokens unused while messages waited elsewhere",
        "control messages",
    ]
    rows = [
        [
            run.kind,
            f"{run.delayed:,} ({100 * run.delayed / max(1, run.messages):.2g} %)",
            f"{run.delay_sum_s:,.4g}" if run.delay_sum_s < 1_000 else f"{run.delay_sum_s:,.0f}",
            f"{run.delay_p99_ms:,.3g}" if run.delay_p99_ms < 1_000 else f"{run.delay_p99_ms:,.0f}",
            f"{run.left_waiting:,}",
            f"{run.unused_missed:,.0f}",
            f"{run.control:,}",
        ]
        for run in runs
    ]
    return markdown_table(header, rows)


def _one_bucket(arrivals: Sequence[Ints], envelope: Envelope, ends_ns: int) -> DemandRun:
    arrival, due = one_bucket(arrivals, envelope)
    left = int((due >= ends_ns).sum())
    return _measured(ONE_BUCKET, arrival, due, envelope, left=left, missed=0.0, control=0)


def _measured(
    kind: str, arrival_ns: Ints, due_ns: Ints, envelope: Envelope, *, left: int, missed: float, control: int
) -> DemandRun:
    delay_ns = due_ns - arrival_ns
    return DemandRun(
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
