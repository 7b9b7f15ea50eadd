"""One envelope over k brokers: the brokers' access delays are the reference's, and the reference's are the theory's.

10,000 Poisson msg/s, r = 11,000, b = 25, shares in proportion. Expected p99 access delay (main paper, section 2 and
appendix A: k independent G/D/1 servers): 2.3, 4.6, 7.0, 9.3, 11.5 ms for k = 2..6, next to nothing for k = 1.

The theory is of Poisson arrivals. When this machine stops the generator for a while, what it held back arrives at once,
and waits as it must: with r only 10 % above the load a stop of T takes 10 T to drain. A run in which the generator was
ever more than ``STOP_MS`` late says nothing about the theory; it stays on record, does not count, and is repeated.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.harness.cluster_runs.broker_api import bucket_state, put_bucket
from bench.harness.cluster_runs.trace import Trace, fetch_trace, percentile_ms
from bench.harness.load.run import RunResult, run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.results.verdict import Check, Verdict, at_most, within
from bench.harness.systems.systems import System, bare_broker
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.replay import access_delays
from srtm.units import from_micro, to_micro

CLAIM = (
    "10,000 Poisson msg/s, r = 11,000, b = 25, split over k brokers, five runs of {seconds:g} s each: access delays "
    "equal the reference's on the recorded arrivals within 1 %, and their mean p99 is within 15 % of theory."
)
RATE = 11_000.0
BURST = 25.0
PUBLISHERS = 1_000
RATE_PER_S = 10.0
THEORY_MS = {2: 2.3, 3: 4.6, 4: 7.0, 5: 9.3, 6: 11.5}
ONE_BROKER_MS = 0.3
THEORY_WITHIN = 0.15
REFERENCE_WITHIN = 0.01
RUNS = 5
SECONDS = 60.0
QUICK_SECONDS = 3.0
STOP_MS = 10.0  # a hundred messages at once, drained in a tenth of a second: a few thousandths of a run

Share = tuple[int, int]  # micro-messages/s, micro-messages


@dataclass(frozen=True)
class SplitRun:
    """One run over k brokers. Delays are of all brokers together, warm-up excluded."""

    brokers: int
    result: RunResult
    access_p99_ms: float
    # largest relative difference of a broker's figure (mean, p99, reported p99) from the reference's
    off_reference: float

    @property
    def poisson(self) -> bool:
        """Whether the arrivals were what was intended."""
        return self.result.valid and self.result.lateness_max_ms <= STOP_MS

    def row(self) -> dict[str, object]:
        run = self.result.row(f"split-{self.brokers}")
        mine = {"access_p99_ms": self.access_p99_ms, "off_reference": self.off_reference, "poisson": self.poisson}
        return {**run, "lateness_max_ms": self.result.lateness_max_ms, **mine}


async def measure(folder: Path, seed: int, quick: bool, seconds: float = SECONDS) -> Verdict:
    counts, runs, seconds = ((1, 2), 1, QUICK_SECONDS) if quick else ((1, *THEORY_MS), RUNS, seconds)
    found: list[SplitRun] = []
    for brokers in counts:
        counted = 0
        for number in range(2 * runs):
            found.append(await _run(folder / f"split-{brokers}-{number}", brokers, seconds, seed + number))
            counted += found[-1].poisson
            if counted == runs:
                break
    return judge(found, {"rate": RATE, "burst": BURST, "runs": runs, "seconds": seconds}, runs)


def judge(runs: Sequence[SplitRun], settings: dict[str, object], wanted: int = 1) -> Verdict:
    """``wanted``: how many runs of each k must count."""
    by_k = {k: [run for run in runs if run.brokers == k and run.poisson] for k in sorted({r.brokers for r in runs})}
    off = 100 * max(run.off_reference for run in runs)
    few = [
        f"k = {k}: only {len(some)} of {wanted} runs were not stopped" for k, some in by_k.items() if len(some) < wanted
    ]
    return Verdict(
        name="split",
        claim=CLAIM.format(seconds=settings.get("seconds", SECONDS)),
        checks=[
            *(_against_theory(k, some) for k, some in by_k.items() if some),
            at_most("largest difference from the reference", off, 100 * REFERENCE_WITHIN, "%"),
        ],
        runs=[run.row() for run in runs],
        settings=settings,
        reasons=few,
    )


def off_reference(trace: Trace, share: Share, reported_p99_ms: float) -> float:
    """Relative difference of one broker's access delays from those that the reference gives on the same arrivals."""
    expected = access_delays(trace.arrival_ns, *share)
    p99_ms = percentile_ms(expected, 99)
    return max(
        _apart(float(trace.access_ns.mean()), float(expected.mean())),
        _apart(percentile_ms(trace.access_ns, 99), p99_ms),
        _apart(reported_p99_ms, p99_ms),
    )


def _apart(value: float, expected: float) -> float:
    return abs(value - expected) / expected if expected else float(value > 0)


def _against_theory(brokers: int, runs: Sequence[SplitRun]) -> Check:
    mean_ms = statistics.mean(run.access_p99_ms for run in runs)
    what = f"k = {brokers}: p99 access delay, mean of {len(runs)} runs"
    if brokers == 1:
        return at_most(what, mean_ms, ONE_BROKER_MS, "ms")
    return within(what, mean_ms, THEORY_MS[brokers], THEORY_WITHIN, "ms")


async def _run(folder: Path, brokers: int, seconds: float, seed: int) -> SplitRun:
    target = [publisher % brokers for publisher in range(PUBLISHERS)]
    assigned = [RATE_PER_S * target.count(broker) for broker in range(brokers)]
    shares = split_bucket(to_micro(RATE, "rate"), to_micro(BURST, "burst"), assigned)
    async with AsyncExitStack() as stack:
        systems = [await stack.enter_async_context(bare_broker(folder / f"broker-{at}")) for at in range(brokers)]
        for system, (rate_micro, burst_micro) in zip(systems, shares, strict=True):
            await put_bucket(system.http_address, "split", from_micro(rate_micro), from_micro(burst_micro))
        plan = _plan([system.tcp_address for system in systems], target, seconds, seed)
        return await _collect(systems, shares, await run_plan(plan, name=f"split {brokers}"), plan.warmup_s)


def _plan(addresses: list[str], target: list[int], seconds: float, seed: int) -> Plan:
    return Plan(
        topic="split",
        targets=addresses,
        publishers=modelled(target, RATE_PER_S),
        subscribers=[Subscriber(target=at) for at in range(len(addresses))],
        duration_s=seconds,
        seed=seed,
    )


async def _collect(systems: list[System], shares: list[Share], result: RunResult, warmup_s: float) -> SplitRun:
    traces = [await fetch_trace(system.http_address, "split") for system in systems]
    reported = [(await bucket_state(system.http_address, "split")).latency.access.since_start for system in systems]
    begun_ns = min(int(trace.arrival_ns.min()) for trace in traces) + round(warmup_s * 1e9)
    delays = np.concatenate([trace.since(begun_ns).access_ns for trace in traces])
    off = [off_reference(t, share, p.p99_ms) for t, share, p in zip(traces, shares, reported, strict=True)]
    return SplitRun(len(systems), result, percentile_ms(delays, 99), max(off))
