"""Proposition 1: the sum of delays of k buckets is never below that of the one, at any instant. Lemma 2: nor is their
unfinished work. Both are checked after every message of traffic that is split at random, under equal and unequal
shares, and under shares that change on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.experiments.figures.eq01 import LOAD, RATE, arrivals
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, none_of
from bench.simulation.traffic import Fleet
from srtm.errors import InternalError
from srtm.token_bucket.bucket import TOKEN, Bucket
from srtm.token_bucket.exact_split import split
from srtm.topics.publishers import Floats
from srtm.units import MICRO

PARTS = {"halves": (0.5, 0.5), "one to nine": (0.1, 0.9), "six equal": (1 / 6,) * 6}
LAW_S = 0.5  # of traffic: every arrival is looked at
LAW_BURST = 25
CHANGES = 10
_POINTS = 50  # of a line

Shares = list[tuple[int, int]]  # micro-messages


def figure(effort: Effort) -> Figure:
    rows = [_law_row(name, parts, effort) for name, parts in PARTS.items()]
    return Figure(
        rows=rows,
        panels=[_panel(next(iter(effort.seeds())))],
        checks=_law_checks(rows),
        conditions=f"{LOAD:,} Poisson msg/s, r = {RATE:,}, b = {LAW_BURST}",
    )


def _law_row(name: str, parts: Sequence[float], effort: Effort) -> Row:
    effort.step(f"Proposition 1 and Lemma 2, {name}")
    fleet = Fleet(count=LOAD // 10)
    below = {"sum_below": 0, "work_below": 0, "sum_below_changing": 0, "work_below_changing": 0}
    instants = 0
    for seed in effort.seeds():
        arrival_ns = arrivals(fleet, LAW_S, seed).tolist()
        rng = np.random.default_rng([seed, 0xC])
        broker = rng.choice(len(parts), len(arrival_ns), p=parts).tolist()
        one = history(arrival_ns, [0] * len(arrival_ns), [_shares([1.0])])
        for suffix, layouts in (("", [parts]), ("_changing", [parts, *rng.dirichlet([2.0] * len(parts), CHANGES)])):
            split = history(arrival_ns, broker, [_shares(weights) for weights in layouts])
            # An instant is rounded up to a whole nanosecond, once a message; a nanosecond of work is far below 1e-3.
            slack_ns = np.arange(1, len(arrival_ns) + 1)
            below[f"sum_below{suffix}"] += int(np.count_nonzero(split.sum_ns + slack_ns < one.sum_ns))
            below[f"work_below{suffix}"] += int(np.count_nonzero(split.work < one.work - 1e-3))
        instants += len(arrival_ns)
    return {"split": name, "instants": instants, **below}


def _shares(weights: Sequence[float]) -> Shares:
    """Bursts of at least a token, as every share has that may be used."""
    rates = split(RATE * MICRO, list(weights), MICRO)
    return list(zip(rates, split(LAW_BURST * MICRO, list(weights), MICRO), strict=True))


@dataclass(frozen=True)
class History:
    """By message, in order of arrival: sum of the delays of all messages so far, and unfinished work just after it, in
    tokens."""

    sum_ns: Floats
    work: Floats


def history(arrival_ns: Sequence[int], broker: Sequence[int], layouts: Sequence[Shares]) -> History:
    """What buckets under ``layouts``, one after the other in equal stretches of the messages, make of them."""
    buckets = [Bucket(rate, burst, arrival_ns[0]) for rate, burst in layouts[0]]
    due: list[list[tuple[int, int]]] = [[] for _ in buckets]  # (message, instant), as things stand
    found = np.zeros(len(arrival_ns))
    work = np.zeros(len(arrival_ns))
    stretch = -(-len(arrival_ns) // len(layouts))
    for message, (now, at) in enumerate(zip(arrival_ns, broker, strict=True)):
        if message and message % stretch == 0:
            for bucket, waiting, (rate, burst) in zip(buckets, due, layouts[message // stretch], strict=True):
                instants = bucket.set(rate, burst, now)
                last = waiting[len(waiting) - len(instants) :]
                waiting[len(waiting) - len(instants) :] = [
                    (which, _finite(instant)) for (which, _), instant in zip(last, instants, strict=True)
                ]
        due[at].append((message, _finite(buckets[at].take(1, now))))
        work[message] = sum(bucket.unfinished_work(now) for bucket in buckets) / TOKEN
    for waiting in due:
        for message, instant in waiting:
            found[message] = instant - arrival_ns[message]
    return History(np.cumsum(found), work)


def _finite(instant: int | None) -> int:
    if instant is None:
        raise InternalError("a share with tokens to come let nothing go")
    return instant


def _law_checks(rows: Sequence[Row]) -> list[Check]:
    def total(*keys: str) -> int:
        return sum(int(row[key]) for row in rows for key in keys)

    seen = sum(row["instants"] for row in rows)
    return [
        none_of(f"Proposition 1: times the split sum was below, of {seen:,}", total("sum_below")),
        none_of(f"Lemma 2: times the split work was below, of {seen:,}", total("work_below")),
        none_of(f"both, shares changing {CHANGES} times", total("sum_below_changing", "work_below_changing")),
    ]


def _panel(seed: int) -> Panel:
    """What the laws look like: the sums as they grow, of one bucket and of six."""
    arrival_ns = arrivals(Fleet(count=LOAD // 10), LAW_S, seed).tolist()
    at_ms = [at / 1e6 for at in arrival_ns[:: max(1, len(arrival_ns) // _POINTS)]]
    series = []
    for name, parts in {"one bucket": (1.0,), **PARTS}.items():
        broker = np.random.default_rng([seed, 0xC]).choice(len(parts), len(arrival_ns), p=parts).tolist()
        found = history(arrival_ns, broker, [_shares(parts)]).sum_ns / 1e6
        series.append(Series(label=name, x=at_ms, y=found[:: max(1, len(arrival_ns) // _POINTS)].tolist()))
    return Panel(
        title="Proposition 1: sum of access delays so far",
        x_label="instant (ms)",
        y_label="sum of delays (ms, log scale)",
        series=series,
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="prop1",
    title="Proposition 1 and Lemma 2 on the exact bucket",
    claim="A split never lowers the running sum of delays, nor the unfinished work, whatever shares do on the way.",
    columns={
        "split": "split",
        "instants": "instants",
        "sum below": "sum_below",
        "work below": "work_below",
        "sum below, shares changing": "sum_below_changing",
        "work below, shares changing": "work_below_changing",
    },
    run=figure,
    runs=f"{{repetitions}} runs of {LAW_S:g} s",
    full=Effort(seconds=0.0),
)
