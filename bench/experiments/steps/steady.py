"""``srtm bench adaptation-steady``: the worse broker's delays while traffic stays at 10:90, under ``fitted`` and under
``proportional`` with the paper's window, in turns on the same two brokers, each pair with the same traffic.

The topic is declared at 10:90 and sent to so from the start: what a step leaves behind is no part of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.steps.run import PROMISE_MS
from bench.experiments.steps.traffic import LOAD, placed, publishers_of, topic_document, two_brokers
from bench.harness.cluster_runs.recovery import SECOND_NS, Aftermath
from bench.harness.cluster_runs.trace import Trace, fetch_trace
from bench.harness.load.run import run_plan
from bench.harness.load.validity import why_invalid
from bench.harness.load.workload import Plan, Subscriber
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results, merged, percentile_ms, source_commit
from bench.harness.results.verdict import Check, Verdict
from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import Cluster
from srtm.token_bucket.replay import NEVER_NS

BLOCK = "adaptation-steady"
MODES = ("fitted", "proportional")
FIRST_PART = 0.1  # of the load
MOST_OF_PROPORTIONAL = 0.2  # the median of fitted's p99s, as a part of that of proportional's
SETTLING_S = 15.0  # the paper's window is full, and shares were made of it
MOST_WATCHED_S = 90.0  # a broker's trace has room for a million messages
_MOST_PAIRS = 2  # times those that are to count
_AROUND_S = 5.0  # a topic is made, traces are fetched
_PERCENTILE = 99.0
# What was held up comes in a burst, and that drains by the slack of its broker alone, a thirteenth of its rate: one
# message late in a thousand makes more than one in a hundred wait.
_LATE_PERCENTILE = 99.9


@dataclass(frozen=True)
class SteadyOptions:
    pairs: int = 4  # that count
    seconds: float = 60.0  # watched
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None


@dataclass(frozen=True, kw_only=True)
class SteadyRun:
    mode: str
    pair: int
    worst_p99_ms: float  # access delay, of the worse broker
    messages: int  # that were watched
    late_p999_ms: float  # of the generator
    reasons: list[str]  # why it does not count; empty: it does

    def row(self) -> dict[str, Any]:
        return {"name": f"{self.mode}, pair {self.pair}", **asdict(self)}


async def adaptation_steady(options: SteadyOptions, show: Callable[[str], None]) -> Verdict:
    """Raises Unavailable, PeerError, BadInput."""
    refuse_without_block(options.document, BLOCK)
    started, commit = time.time(), source_commit()
    a_run_s = SETTLING_S + options.seconds + _AROUND_S
    minutes = 2 * options.pairs * a_run_s / 60
    show(f"{2 * options.pairs} runs, about {minutes:.0f} minutes, twice that where runs do not count; sources {commit}")
    runs = []
    async with two_brokers() as (running, client):
        for pair in range(1, _MOST_PAIRS * options.pairs + 1):
            for mode in MODES:
                run = await _run(running, client, mode, pair, options)
                show("; ".join([f"pair {pair}, {mode}: {run.worst_p99_ms:.2f} ms", *run.reasons]))
                runs.append(run)
            if len(_counting(runs)) == options.pairs:
                break
    verdict = judged(runs)
    text = "\n\n".join([_claim(options), markdown(runs), f"{verdict.line}."])
    show(f"\n{text}")
    settings = {"pairs": options.pairs, "seconds": options.seconds, "settling_s": SETTLING_S}
    results = Results.of_verdicts(
        "bench adaptation-steady", [verdict], seed=options.seed, started=started, settings=settings
    )
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file, data=True)
    return verdict


async def _run(running: Cluster, client: DistributorClient, mode: str, pair: int, options: SteadyOptions) -> SteadyRun:
    topic = f"steady-{pair}-{mode}"
    await client.create_or_change_topic(topic, topic_document(topic, FIRST_PART, 1, mode))
    try:
        addresses = await placed(client, topic)
        result = await run_plan(steady_plan(topic, addresses, options.seconds, options.seed * 1000 + pair))
        http = {place.tcp_address: place.http_address for place in running.brokers}
        traces = [await fetch_trace(http[address], topic) for address in addresses]
    finally:
        await client.remove_topic(topic, purge=True)
    worst_ms, messages = watched(traces, options.seconds)
    late_ms = percentile_ms(merged([result.histograms.lateness]), _LATE_PERCENTILE)
    return SteadyRun(
        mode=mode,
        pair=pair,
        worst_p99_ms=worst_ms,
        messages=messages,
        late_p999_ms=late_ms,
        reasons=[*why_invalid(result, _PERCENTILE), *too_late(late_ms), *_missing(messages, options.seconds)],
    )


def steady_plan(topic: str, addresses: Sequence[str], seconds: float, seed: int) -> Plan:
    publishers = publishers_of([FIRST_PART, 1 - FIRST_PART], "steady-", 1)
    return Plan(
        topic=topic,
        targets=list(addresses),
        publishers=publishers,
        subscribers=[Subscriber(target=at) for at in range(len(addresses))],
        duration_s=seconds,
        warmup_s=SETTLING_S,
        seed=seed,
        slo_ms=PROMISE_MS,
        percentile=_PERCENTILE,
    )


def watched(traces: Sequence[Trace], seconds: float) -> tuple[float, int]:
    """Of the last so many seconds: the worse broker's p99, ms, and how many messages came. What still waited is due
    never."""
    due_ns = [np.where(trace.due_ns < trace.arrival_ns, NEVER_NS, trace.due_ns) for trace in traces]
    ends_ns = max(int(trace.arrival_ns.max(initial=0)) for trace in traces) + 1
    from_ns = ends_ns - round(seconds * SECOND_NS)
    seen = Aftermath([trace.arrival_ns for trace in traces], due_ns, from_ns, ends_ns)
    return seen.worst_p99_ms(from_ns), sum(len(trace.since(from_ns)) for trace in traces)


def too_late(late_ms: float) -> list[str]:
    """``late_ms``: 99.9 % of the messages were sent no later than that."""
    if late_ms <= PROMISE_MS:
        return []
    return [f"the generator's p99.9 lateness {late_ms:.3g} ms, over {PROMISE_MS:g} ms"]


def _missing(messages: int, seconds: float) -> list[str]:
    """A trace that was full has lost what came first."""
    meant = LOAD * seconds
    return [] if messages >= 0.98 * meant else [f"traces have {messages} messages of about {meant:.0f}"]


def judged(runs: Sequence[SteadyRun]) -> Verdict:
    """Pairs count of which both runs do."""
    claim = f"worst-broker p99 at 10:90 under fitted at most {MOST_OF_PROPORTIONAL:g} of that under proportional"
    rows: list[dict[str, object]] = [run.row() for run in runs]
    counting = _counting(runs)
    if not counting:
        return Verdict(BLOCK, claim, [], rows, reasons=["no pair counts"])
    fitted, proportional = (statistics.median(pair[at] for pair in counting) for at in (0, 1))
    part = fitted / proportional if proportional else float("inf")
    measured = f"{part:.3g} (median {fitted:.3g} ms of {proportional:.3g} ms, {len(counting)} pairs)"
    check = Check(
        "fitted's part of proportional's worst p99",
        measured,
        f"at most {MOST_OF_PROPORTIONAL:g}",
        part <= MOST_OF_PROPORTIONAL,
    )
    return Verdict(BLOCK, claim, [check], rows)


def _counting(runs: Sequence[SteadyRun]) -> list[tuple[float, float]]:
    """p99 under both modes of each pair that counts, ms."""
    pairs = [_pair(runs, number) for number in sorted({run.pair for run in runs})]
    return [
        (fitted.worst_p99_ms, proportional.worst_p99_ms)
        for fitted, proportional in pairs
        if not (fitted.reasons or proportional.reasons)
    ]


def _pair(runs: Sequence[SteadyRun], number: int) -> tuple[SteadyRun, SteadyRun]:
    fitted, proportional = (next(run for run in runs if (run.pair, run.mode) == (number, mode)) for mode in MODES)
    return fitted, proportional


def _claim(options: SteadyOptions) -> str:
    return (
        "10,000 Poisson msg/s on two brokers, a tenth of it on the first, r = 11,000, b = 25: the worse broker's p99 "
        f"access delay in {options.seconds:g} s, from {SETTLING_S:g} s after the start of a topic that was declared so;"
        " modes in turns on the same brokers, both of a pair with the same traffic."
    )


def markdown(runs: Sequence[SteadyRun]) -> str:
    rows = []
    for number in sorted({run.pair for run in runs}):
        pair = _pair(runs, number)
        fitted, proportional = (run.worst_p99_ms for run in pair)
        part = f"{fitted / proportional:.2g}" if proportional else ""
        why = "; ".join(f"{run.mode}: {reason}" for run in pair for reason in run.reasons)
        late = " / ".join(f"{run.late_p999_ms:.2g}" for run in pair)
        rows.append([str(number), f"{fitted:.3g}", f"{proportional:.3g}", part, late, why or "counts"])
    header = ["pair", "fitted, ms", "proportional, ms", "ratio", "generator's p99.9 lateness, ms", ""]
    return markdown_table(header, rows)
