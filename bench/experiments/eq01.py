"""Eq. (1), Proposition 1 and Lemma 2: theory of the token bucket against the exact bucket.

Eq. (1): the mean access delay of independent Poisson messages, M/D/1's tail by the formula, against simulation.
Proposition 1: the sum of delays of k buckets is never below that of the one, at any instant. Lemma 2: nor is their
unfinished work. Both are checked after every message of traffic that is split at random, under equal and unequal
shares, and under shares that change on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.experiments.figure import Effort, Experiment, Figure, Panel, Row, Series
from bench.simulator import Ints
from bench.traffic import Fleet
from bench.verdict import Check, none_of, within
from srtm.bucket import TOKEN, Bucket
from srtm.errors import InternalError
from srtm.poisson_bucket import mean_delay_s
from srtm.publishers import Floats
from srtm.replay import access_delays
from srtm.splitting import MICRO, split

LOAD, RATE = 10_000, 11_000  # msg/s
BURSTS = (1, 2, 5, 10, 25)
PARTS = {"halves": (0.5, 0.5), "one to nine": (0.1, 0.9), "six equal": (1 / 6,) * 6}
LAW_S = 0.5  # of traffic for the laws: every arrival is looked at
LAW_BURST = 25
MEAN_TIMES = 60  # the mean of a rare delay needs that much more traffic than a percentile
CHANGES = 10

Shares = list[tuple[int, int]]  # micro-messages


def figure(effort: Effort) -> Figure:
    rows = [_mean_row(burst, effort) for burst in BURSTS]
    laws = [_law_row(name, parts, effort) for name, parts in PARTS.items()]
    return Figure(
        rows=[*rows, *laws],
        panels=[_panel(rows)],
        checks=[*_mean_checks(rows), *_law_checks(laws)],
        conditions=f"{LOAD:,} Poisson msg/s, r = {RATE:,}; laws: b = {LAW_BURST}, {LAW_S:g} s a repetition",
    )


def _mean_row(burst: int, effort: Effort) -> Row:
    effort.step(f"Eq. (1), b = {burst}")
    fleet = Fleet(count=LOAD // 10)
    sums, counts = 0, 0
    for seed in effort.seeds():
        delays = access_delays(_arrivals(fleet, MEAN_TIMES * effort.seconds, seed), RATE * MICRO, burst * MICRO)
        sums, counts = sums + int(delays.sum()), counts + len(delays)
    return {
        "part": "Eq. (1)",
        "burst": burst,
        "formula_ms": 1_000 * mean_delay_s(LOAD, RATE, burst),
        "simulated_ms": sums / counts / 1e6,
        "messages": counts,
    }


def _arrivals(fleet: Fleet, seconds: float, seed: int) -> Ints:
    everybody = np.zeros(fleet.count, dtype=np.int64)
    return fleet.arrivals(everybody, 1, seconds, np.random.default_rng([seed, 0xE]))[0]


def _law_row(name: str, parts: Sequence[float], effort: Effort) -> Row:
    effort.step(f"Proposition 1 and Lemma 2, {name}")
    fleet = Fleet(count=LOAD // 10)
    below = {"sum_below": 0, "work_below": 0, "sum_below_changing": 0, "work_below_changing": 0}
    instants = 0
    for seed in effort.seeds():
        arrival_ns = _arrivals(fleet, LAW_S, seed).tolist()
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
    return {"part": "laws", "split": name, "instants": instants, **below}


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


def _mean_checks(rows: Sequence[Row]) -> list[Check]:
    """Exact for b = 1; within 5 % for b = 5 and 25."""
    close = {1: 0.02, 5: 0.05, 25: 0.05}
    return [
        within(
            f"mean access delay, b = {row['burst']}", row["simulated_ms"], row["formula_ms"], close[row["burst"]], "ms"
        )
        for row in rows
        if row["burst"] in close
    ]


def _law_checks(rows: Sequence[Row]) -> list[Check]:
    def total(*keys: str) -> int:
        return sum(int(row[key]) for row in rows for key in keys)

    seen = sum(row["instants"] for row in rows)
    return [
        none_of(f"Proposition 1: times the split sum was below, of {seen:,}", total("sum_below")),
        none_of(f"Lemma 2: times the split work was below, of {seen:,}", total("work_below")),
        none_of(f"both, shares changing {CHANGES} times", total("sum_below_changing", "work_below_changing")),
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    bursts = [row["burst"] for row in rows]
    return Panel(
        title="Eq. (1): mean access delay",
        x_label="burst b (messages)",
        y_label="mean access delay (ms, log scale)",
        series=[
            Series(label="exact bucket", x=bursts, y=[row["simulated_ms"] for row in rows]),
            Series(label="Eq. (1)", x=bursts, y=[row["formula_ms"] for row in rows], marks_only=True),
        ],
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="eq01",
    title="Eq. (1), Proposition 1 and Lemma 2 on the exact bucket",
    claim="The mean follows Eq. (1); a split never lowers the running sum of delays, nor the unfinished work.",
    columns={
        "what": "part",
        "b": "burst",
        "split": "split",
        "Eq. (1), ms": "formula_ms",
        "simulated, ms": "simulated_ms",
        "instants": "instants",
        "sum below": "sum_below",
        "work below": "work_below",
        "sum below, shares changing": "sum_below_changing",
        "work below, shares changing": "work_below_changing",
    },
    run=figure,
)
