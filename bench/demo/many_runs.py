"""``srtm bench demo-runs``: the demo's sample beside many others, simulated: which of the two placements waits less.

The placements and the shares are the distributor's own; buckets are exact (``srtm.token_bucket.replay``); brokers take
no time. The delay of a run is the p99 access delay of its worst broker, as the demo shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.console.progress import counted
from bench.data.sensors import TOPIC_TOML
from bench.demo.run import BROKERS, MCAP, PLACEMENTS, DemoOptions
from bench.harness.cluster_runs.trace import Column, Trace, percentile_ms
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.plot import Promise
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from distributor.model.leases import MICRO, Amount
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.planner import place_anew
from distributor.placement.shares import ShareDemand, target_shares
from srtm.token_bucket.replay import access_delays
from srtm.topics.spec import Strategy, TopicSpec, parse_topic_toml

BLOCK = "demo-runs"
NAMES = tuple(f"broker-{number}" for number in range(1, BROKERS + 1))
CLAIM = "{runs} runs of {seconds:g} s, simulated, each with other traffic: p99 access delay of the worst broker."


@dataclass(frozen=True)
class DemoRunsOptions:
    runs: int = 200
    seconds: float = DemoOptions.seconds
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True)
class Arranged:
    """The demo's topic under one placement. ``broker_of``: index into ``NAMES`` of each publisher."""

    broker_of: tuple[int, ...]
    shares: Mapping[str, Amount]


@dataclass(frozen=True)
class Sampled:
    """One placement over all runs. Delays in ms."""

    placement: str
    median_ms: float
    lowest_ms: float  # a tenth lie below
    highest_ms: float  # a tenth lie above
    kept: int  # runs that stay within the promise


@dataclass(frozen=True)
class DemoRuns:
    sampled: Sequence[Sampled]
    less: int  # runs in which srtm waits less than lb


@cache
def arranged(placement: Strategy) -> Arranged:
    spec = replace(_spec(), placement=placement)
    burst, placed, _ = place_anew(spec, [BrokerCapacity(name=name, mcap=MCAP) for name in NAMES])
    envelope = Amount(round(spec.rate * MICRO), round(burst * MICRO))
    broker_of = tuple(NAMES.index(placed.brokers[at]) for at in placed.at)
    return Arranged(broker_of, target_shares(ShareDemand(spec=spec, envelope=envelope, placement=placed)))


def fired(seed: int, seconds: float) -> tuple[Column, Column]:
    """Arrival instants, ns, and senders: a Poisson process a group, all its members at each of its instants."""
    publishers = _spec().publishers
    rng = np.random.default_rng(seed)
    instants, senders = [], []
    for group in np.unique(publishers.groups):
        members = np.flatnonzero(publishers.groups == group)
        firings = rng.poisson(publishers.rates[members[0]] * seconds)
        instants.append(np.repeat(rng.integers(0, int(seconds * 1e9), firings), len(members)))
        senders.append(np.tile(members, firings))
    arrival_ns, publisher = np.concatenate(instants), np.concatenate(senders)
    order = np.argsort(arrival_ns, kind="stable")
    return arrival_ns[order], publisher[order]


def simulated(placement: Strategy, seed: int, seconds: float) -> dict[str, Trace]:
    """What the brokers' traces would be if they did no more than what their buckets say."""
    arrival_ns, publisher = fired(seed, seconds)
    how = arranged(placement)
    home = np.array(how.broker_of)[publisher]
    traces = {}
    for name, share in how.shares.items():
        mine = home == NAMES.index(name)
        came = arrival_ns[mine]
        due = came + access_delays(came, share.rate, share.burst)
        traces[name] = Trace([], publisher[mine], came, due, due, due)
    return traces


def worst_p99_ms(placement: Strategy, seed: int, seconds: float) -> float:
    return max(percentile_ms(trace.access_ns, 99) for trace in simulated(placement, seed, seconds).values())


def demo_runs(options: DemoRunsOptions, show: Callable[[str], None]) -> DemoRuns:
    """All runs, counted, the table shown at the end. Raises BadInput for a document without the block."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    both = [
        [worst_p99_ms(placement, seed, options.seconds) for placement in PLACEMENTS]
        for seed in counted(range(options.runs), show)
    ]
    delays = dict(zip(PLACEMENTS, np.array(both).T, strict=True))
    found = DemoRuns(
        [_sampled(placement, column) for placement, column in delays.items()],
        int(np.count_nonzero(delays["srtm"] < delays["lb"])),
    )
    text = f"{CLAIM.format(runs=options.runs, seconds=options.seconds)}\n\n{_markdown(found, options.runs)}"
    show(text)
    results = _results(found, options, started)
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file)
    return found


@cache
def _spec() -> TopicSpec:
    return parse_topic_toml(TOPIC_TOML)


def _promise() -> Promise:
    slo = _spec().slo
    return Promise(slo.percentile / 100, slo.latency_ms)


def _sampled(placement: str, delays_ms: NDArray[np.float64]) -> Sampled:
    lowest, median, highest = (float(one) for one in np.percentile(delays_ms, [10, 50, 90]))
    return Sampled(
        placement=placement,
        median_ms=median,
        lowest_ms=lowest,
        highest_ms=highest,
        kept=int(np.count_nonzero(delays_ms <= _promise().latency_ms)),
    )


def _markdown(found: DemoRuns, runs: int) -> str:
    header = ["", "median", "a tenth below", "a tenth above", "promise kept"]
    rows = [
        [
            one.placement,
            *(f"{value:.1f} ms" for value in (one.median_ms, one.lowest_ms, one.highest_ms)),
            f"{one.kept} of {runs}",
        ]
        for one in found.sampled
    ]
    return f"{markdown_table(header, rows)}\n\nsrtm waits less than lb in {found.less} of {runs}."


def _results(found: DemoRuns, options: DemoRunsOptions, started: float) -> Results:
    settings = {"runs": options.runs, "seconds": options.seconds, "less": found.less}
    rows = [{"name": one.placement, **asdict(one)} for one in found.sampled]
    return Results.of("bench demo-runs", rows, seed=0, started=started, settings=settings)
