"""Random fleets in virtual time, to judge how a split follows the traffic: who publishes where, when, and how much.

A case is drawn from a seed: 1 to 6 brokers; groups of 1 to 30 that fire together; loads of 50 to 95 % of r; publishers
that follow their assignment and plain ones that publish elsewhere; all started at once, one by one, or broker by
broker; traffic that is steady, drifts (publishers go to another broker one by one), or shifts (many at once).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from adaptor.observations import Envelope, Shares
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from srtm.token_bucket.bucket import TOKEN
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket
from srtm.token_bucket.replay import Server
from srtm.units import MICRO

ENDS_S = 45.0
STARTED_S = 8.0  # all have begun
SHIFT_S = 25.0
SETTLING_S = 5.0  # after the last start, and after a shift: judged apart
STARTS = ("at once", "one by one", "broker by broker")
COURSES = ("steady", "drifting", "shifting")
_MOST_PUBLISHERS = 1_500
_LARGEST_GROUP = 30
_MOST_BROKERS = 6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SplitCase:
    """One fleet. Publishers are columns."""

    seed: int
    brokers: int
    group: int  # members of a group, which fire together
    batch: int
    rate: float  # of one publisher, firings/s
    process: str  # "poisson" or "periodic"
    part: float  # load by r
    slo_ms: float
    start: str
    course: str
    plain: float  # part of the publishers that publish where they do not belong
    home: Ints  # broker of each publisher, as placed
    first: Ints  # broker at which it begins
    moved: Ints  # broker at which it is after ``moves_s``
    begins_s: Floats
    moves_s: Floats
    spare: float  # of the burst, by what one bucket needs
    draw: int = 1  # of the instants: another one is another run of the same fleet

    @property
    def name(self) -> str:
        """What it is, in a line."""
        plain = f"{self.plain:.0%} plain" if self.plain else "aware"
        return (
            f"{self.seed}: {len(self.home)} {plain}, {self.process}, groups of {self.group}, k = {self.brokers}, "
            f"load {self.part:.0%}, {self.start}, {self.course}"
        )

    @property
    def load(self) -> float:
        """Of all publishers, msg/s."""
        return len(self.home) * self.rate * self.batch

    @cached_property
    def arrivals_ns(self) -> list[Ints]:
        """Of each broker, in order of time."""
        rng = np.random.default_rng([self.seed, self.draw])
        found: list[list[Floats]] = [[] for _ in range(self.brokers)]
        for first in range(0, len(self.home), self.group):
            members = slice(first, first + self.group)
            at_s = self._firings(rng)[:, None]
            sends = at_s >= self.begins_s[members]
            where = np.where(at_s < self.moves_s[members], self.first[members], self.moved[members])
            for broker in range(self.brokers):
                found[broker].append(np.broadcast_to(at_s, sends.shape)[sends & (where == broker)])
        return [np.repeat((np.sort(np.concatenate(parts)) * SECOND_NS).astype(np.int64), self.batch) for parts in found]

    def _firings(self, rng: np.random.Generator) -> Floats:
        """Of one group, s."""
        if self.process == "poisson":
            return np.sort(rng.uniform(0, ENDS_S, rng.poisson(self.rate * ENDS_S)))
        count = int(self.rate * ENDS_S)
        jitter = rng.uniform(-0.02, 0.02, count)
        found: Floats = np.sort((np.arange(count) + rng.uniform() + jitter) / self.rate)
        return found

    @cached_property
    def envelope(self) -> Envelope:
        """r by the load; b by what the promise needs in one bucket, and ``spare``."""
        rate_micro = round(self.load / self.part * MICRO)
        arrival_ns = np.sort(np.concatenate(self.arrivals_ns))
        whole, _ = Server(rate_micro, 0, 0).found(arrival_ns)
        work = np.percentile(whole, 99) * rate_micro / TOKEN + 1
        least = self.brokers * max(2 * self.batch, 2)
        return Envelope(rate_micro=rate_micro, burst_micro=round(max(least, self.spare * work) * MICRO))

    @cached_property
    def declared(self) -> list[Traffic]:
        """Of each broker, as placed."""
        groups = np.arange(len(self.home)) // self.group
        sizes = np.zeros((int(groups[-1]) + 1, self.brokers))
        np.add.at(sizes, (groups, self.home), self.batch)
        load = sizes.sum(axis=0)
        squares = (sizes**2).sum(axis=0)
        return [
            Traffic(rate=float(own) * self.rate, dispersion=float(square / own) if own else 1.0, batch=self.batch)
            for own, square in zip(load, squares, strict=True)
        ]

    @cached_property
    def shares(self) -> Shares:
        """As they are made from what was declared."""
        return fitted_bucket(self.envelope.rate_micro, self.envelope.burst_micro, self.declared)

    @property
    def windows_s(self) -> list[tuple[float, float]]:
        """What is judged: from when all have begun for a while, but for what follows a shift."""
        return [(STARTED_S + SETTLING_S, SHIFT_S), (SHIFT_S + SETTLING_S, ENDS_S)]

    @property
    def after_shift_s(self) -> tuple[float, float]:
        """What is judged apart."""
        return SHIFT_S, SHIFT_S + SETTLING_S


def split_case(seed: int) -> SplitCase:
    """Drawn from ``seed``."""
    rng = np.random.default_rng([seed, 0])
    brokers = int(rng.integers(1, _MOST_BROKERS + 1))
    group = max(1, round(float(np.exp(rng.uniform(0, np.log(_LARGEST_GROUP))))))
    batch, rate = int(rng.choice([1, 1, 1, 5])), float(rng.choice([0.5, 1.0, 2.0, 5.0, 10.0]))
    load = float(np.exp(rng.uniform(np.log(100), np.log(3_000))))
    count = int(np.clip(round(load / rate / batch), 4 * brokers, _MOST_PUBLISHERS))
    weights = np.ones(brokers) if rng.random() < 0.7 else rng.dirichlet(np.full(brokers, 3.0))
    home = _spread(count, weights)
    start, course = str(rng.choice(STARTS)), str(rng.choice(COURSES))
    plain = float(rng.choice([0.0, 0.0, 0.3, 1.0]))
    first = _where_they_publish(home, plain, brokers, rng)
    moves_s, moved = _course(course, first, brokers, rng)
    return SplitCase(
        seed=seed,
        brokers=brokers,
        group=group,
        batch=batch,
        rate=rate,
        process=str(rng.choice(["poisson", "periodic"])),
        part=float(rng.uniform(0.5, 0.95)),
        slo_ms=float(rng.choice([5.0, 10.0, 20.0])),
        start=start,
        course=course,
        plain=plain,
        home=home,
        first=first,
        moved=moved,
        begins_s=_begins_s(start, first, brokers),
        moves_s=moves_s,
        spare=float(rng.uniform(1.0, 1.5)),
    )


def _spread(count: int, weights: Floats) -> Ints:
    """Publishers in turn, by weight: so the members of each group are spread, as placement does it."""
    parts = weights / weights.sum()
    found = np.zeros(count, dtype=np.int64)
    have = np.zeros(len(parts))
    for at in range(count):
        found[at] = np.argmax(parts * (at + 1) - have)
        have[found[at]] += 1
    return found


def _where_they_publish(home: Ints, plain: float, brokers: int, rng: np.random.Generator) -> Ints:
    """Plain publishers: all at one broker, or at any."""
    is_plain = rng.random(len(home)) < plain
    elsewhere = rng.integers(0, brokers, len(home)) if rng.random() < 0.5 else np.zeros(len(home), dtype=np.int64)
    return np.where(is_plain, elsewhere, home)


def _begins_s(start: str, first: Ints, brokers: int) -> Floats:
    if start == "one by one":
        return np.linspace(0, STARTED_S, len(first))
    if start == "broker by broker":
        return np.asarray(first * min(2.0, STARTED_S / max(1, brokers - 1)), dtype=np.float64)
    return np.zeros(len(first))


def _course(course: str, first: Ints, brokers: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """When each publisher moves (inf: never), and where it is then."""
    moves_s = np.full(len(first), np.inf)
    if course == "steady" or brokers == 1:
        return moves_s, first
    to = int(rng.integers(0, brokers))
    goes = (rng.random(len(first)) < rng.uniform(0.1, 0.8)) & (first != to)
    if course == "shifting":
        moves_s[goes] = SHIFT_S
    else:
        moves_s[goes] = rng.uniform(STARTED_S, ENDS_S, int(goes.sum()))
    return moves_s, np.where(goes, to, first)


def worst_p99_ns(logs: Sequence[tuple[Ints, Ints]], windows_s: Sequence[tuple[float, float]]) -> float:
    """The access delay that 99 % of the messages of the worst broker do not exceed, of those that came in a window.

    ``logs``: arrivals and due instants of each broker. Brokers with less than 1 % of the messages do not count.
    """
    parts = []
    for arrival_ns, due_ns in logs:
        inside = np.zeros(len(arrival_ns), dtype=bool)
        for from_s, to_s in windows_s:
            inside |= (arrival_ns >= from_s * SECOND_NS) & (arrival_ns < to_s * SECOND_NS)
        parts.append((due_ns - arrival_ns)[inside])
    total = sum(len(part) for part in parts)
    counted = [part for part in parts if len(part) > 0.01 * total]
    return max((float(np.percentile(part, 99, method="inverted_cdf")) for part in counted), default=0.0)
