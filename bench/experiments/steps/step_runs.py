"""``srtm bench adaptation``: traffic moves from one real broker to another, and the split follows, mode by mode.

What is reported comes from the brokers' own traces: how soon the backlog of the step was gone, how soon the p99 access
delay of the trailing second was back, and the worst broker's p99 in the last seconds. The traffic is that of
``traffic``; what is kept, of which sources, is decided in ``stored_runs``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.experiments.steps.run import COUNTED_S, MODES, SETTLING_S, STEPS, StepRun, counted_s, judged, why_not
from bench.experiments.steps.stored_runs import (
    Made,
    alike,
    file_of,
    in_order,
    is_kept,
    keep,
    kept_in,
)
from bench.experiments.steps.table import conditions, missed, seconds, table, verdict
from bench.experiments.steps.traffic import placed, send_step, step_plans, topic_document, two_brokers
from bench.harness.cluster_runs.trace import fetch_trace
from bench.harness.results.page import Items, Page
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import hand_over, refuse_unpublishable, settings_of
from bench.harness.results.results import Results
from bench.harness.results.sources import PRODUCT, source_commit, source_fingerprint
from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import Cluster

BLOCK = "adaptation"
CLAIM = "After a step of traffic fitted and proportional are back within the times asked, and static never is."
ATTEMPTS = 3  # at a run that counts
_LONG = {"proportional": 1.0, "proportional, 2 s": 0.5}  # of ``long_s``
_AROUND_S = 3.0  # a topic is made, traces are fetched


@dataclass(frozen=True)
class AdaptationOptions:
    steps: tuple[str, ...] = tuple(STEPS)
    modes: tuple[str, ...] = MODES
    runs: int = 10
    least_before_s: float = SETTLING_S + COUNTED_S  # more where more counts
    after_s: float = 8.0
    long_s: float = 60.0  # instead of it, under proportional with the paper's window; half of it with 2 s
    seed: int = 1
    directory: Path = Path("adaptation")  # a file for each run
    resume: bool = False  # keep those that are there, of these sources
    json_file: str | None = None
    document: Path | None = None  # of pages, to write there as well

    def before_s(self, mode: str) -> float:
        return max(self.least_before_s, SETTLING_S + counted_s(mode))

    def watched_s(self, mode: str) -> float:
        return self.long_s * _LONG[mode] if mode in _LONG else self.after_s

    @property
    def made(self) -> Made:
        before_s = {mode: self.before_s(mode) for mode in MODES}
        watched_s = {mode: self.watched_s(mode) for mode in MODES}
        return Made(before_s=before_s, watched_s=watched_s, seed=self.seed, sources=source_fingerprint())


async def adaptation(options: AdaptationOptions, show: Callable[[str], None]) -> list[StepRun]:
    """The runs that are missing, one after the other, on one cluster; then all that are kept. Raises Unavailable,
    BadInput (a run that is kept was made with other settings, or is none)."""
    refuse_unpublishable(options.document)
    started, made = time.time(), options.made
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.resume:
        kept_in(options.directory)  # what is no run is refused before hours have gone into others
    missing = [one for one in _order(options) if not (options.resume and _is_kept(options, made, *one))]
    show(f"{len(missing)} runs, about {_estimate_s(options, missing) / 60:.0f} minutes")
    fresh = await _make(options, missing, show) if missing else []
    runs, others = alike(kept_in(options.directory) if options.resume else in_order(fresh), made.seed, made.sources)
    page = Page(
        title="How soon shares follow a step of traffic",
        claim=CLAIM,
        verdict=verdict(runs),
        body=[conditions(runs), table(runs), *([Items(items=others)] if others else [])],
        sources=[*PRODUCT, "bench/experiments/steps"],
        origin=Origin.here(started),
    )
    show(f"\n{page.text}\n\n{page.verdict}")
    _write(options, runs, page, started)
    return runs


def _write(options: AdaptationOptions, runs: Sequence[StepRun], page: Page, started: float) -> None:
    rows, reasons = [run.row() for run in runs], missed(runs)
    results = Results.of(
        "bench adaptation",
        rows,
        seed=options.seed,
        started=started,
        settings=settings_of(options),
        result={"missed": reasons},
    )
    hand_over(page, results, name=BLOCK, folder=options.document, json_file=options.json_file)


def _is_kept(options: AdaptationOptions, made: Made, step: str, mode: str, number: int) -> bool:
    return is_kept(file_of(options.directory, step, mode, number), mode, made)


def _estimate_s(options: AdaptationOptions, runs: Sequence[tuple[str, str, int]]) -> float:
    return sum(options.before_s(mode) + options.watched_s(mode) + _AROUND_S for _, mode, _ in runs)


def _order(options: AdaptationOptions) -> Iterator[tuple[str, str, int]]:
    """Rounds over everything, so that what disturbs the machine for a while disturbs no mode alone."""
    for attempt in range(options.runs):
        for name in options.steps:
            for mode in options.modes:
                yield name, mode, attempt


async def _make(
    options: AdaptationOptions, missing: Sequence[tuple[str, str, int]], show: Callable[[str], None]
) -> list[StepRun]:
    """Each until it counts, or ``ATTEMPTS`` times; kept as soon as it is made."""
    found = []
    async with two_brokers() as (running, client):
        for at, (step, mode, number) in enumerate(missing):
            for attempt in range(1, ATTEMPTS + 1):
                run = await _run(running, client, options, step, mode, number, attempt, f"step-{at}-{attempt}")
                show(_line(run))
                if run.counts:
                    break
            keep(file_of(options.directory, step, mode, number), run)
            found.append(run)
    return found


def _line(run: StepRun) -> str:
    figures = f"drained {seconds(run.drained_s)}, back {seconds(run.back_s)}"
    delays = f"p99 before {run.before_p99_ms:.2f}, worst at the end {run.worst_p99_ms:.2f} ms"
    return "; ".join(
        [f"{run.step}, {run.mode}: {figures}, {delays}", *(f"does not count: {why}" for why in run.reasons)]
    )


async def _run(
    running: Cluster,
    client: DistributorClient,
    options: AdaptationOptions,
    step: str,
    mode: str,
    number: int,
    attempt: int,
    topic: str,
) -> StepRun:
    shape, before_s, watched_s = STEPS[step], options.before_s(mode), options.watched_s(mode)
    await client.create_or_change_topic(topic, topic_document(topic, shape.before, shape.batch, mode))
    try:
        addresses = await placed(client, topic)
        plans = step_plans(topic, addresses, shape, before_s, watched_s, options.seed * 1000 + number)
        sent = await send_step(plans, before_s, watched_s)
        http = {place.tcp_address: place.http_address for place in running.brokers}
        traces = [await fetch_trace(http[address], topic) for address in addresses]
    finally:
        await client.remove_topic(topic, purge=True)
    seen = judged(traces, sent, counted_s(mode))
    return StepRun(
        **asdict(seen),
        step=shape.name,
        mode=mode,
        number=number,
        late_p99_ms=sent.late_p99_ms,
        before_s=before_s,
        watched_s=watched_s,
        seed=options.seed,
        attempts=attempt,
        reasons=why_not(mode, shape.batch, seen.before_p99_ms, sent.late_p99_ms),
        commit=source_commit(),
        sources=source_fingerprint(),
    )
