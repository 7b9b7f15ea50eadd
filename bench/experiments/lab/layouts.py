"""What the paper's experiments share: its brokers in numbers, the bucket of section 6, the four placements on k
brokers, the search for the fewest that keep the SLO, and what brokers could still take.

``PAPER`` is the calibrated broker (``bench/data/calibrated.json``) in the laboratory: the one number that the paper's
text decides is ``LAB_US`` (``laboratory.py`` says by which of its sentences). One set for all figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from bench.simulation.brokers import WARM_UP, Delays, Ints, Machine, Share, Tail, simulate, worst
from bench.simulation.calibration import calibrated
from bench.simulation.traffic import SECOND_NS, Fleet
from distributor.model.columns import Floats
from distributor.placement.quotas import fill, pack
from srtm.token_bucket.burst_sizing import tokens_needed
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.replay import Server
from srtm.units import MICRO

LAB_US = 9.0
SLOW_US = 500.0  # of a server beside which the machine underneath matters little
SLOWER = 4  # so many times than in the paper go figures on real brokers whose messages come in batches
MACHINE = f"calibrated brokers in the laboratory, {LAB_US:g} us a message"
SLO_NS = 1_000_000
HEADROOM = 1.1  # r over the load
BROKERS = 6
ROUND_S = 60.0  # the paper's measuring rounds (section 6.5)
MCAP_WITHIN = 1.01  # what a broker keeps is found to so much
_LEAST_SERVED = 1_000.0  # msg/s: a broker that does not keep as much within the SLO keeps nothing


def broker_of(lab_us: float) -> Machine:
    """The calibrated broker in the laboratory, on a machine that does not stop: what the slowest hundredth of its
    wake-ups took was not the broker's doing (a thread of ours that only sleeps is as late)."""
    return calibrated().laboratory(lab_us).without_stops()


PAPER = broker_of(LAB_US)


@dataclass(frozen=True, kw_only=True)
class Envelope:
    rate_micro: int
    burst_micro: int

    @property
    def text(self) -> str:
        return f"r = {self.rate_micro / MICRO:,.0f}, b = {self.burst_micro // MICRO}"


@lru_cache(maxsize=1024)
def envelope(fleet: Fleet, seconds: float = ROUND_S, seed: int = 1) -> Envelope:
    """Section 6: r is 1.1 times the load, b the smallest with zero access delay at p99 of the very traffic that
    ``simulate`` draws of ``seed`` for so many ``seconds`` (what it counts of them). So one bucket delays 1 % of it at
    most, and what splitting it costs is not mixed with what another minute would have needed."""
    rate_micro = round(HEADROOM * fleet.load * MICRO)
    arrival_ns = fleet.arrivals(np.zeros(fleet.count, dtype=np.int64), 1, seconds, np.random.default_rng(seed))[0]
    needed = tokens_needed(*Server(rate_micro, 0).found(arrival_ns), rate_micro)
    counted = needed[np.searchsorted(arrival_ns, round(WARM_UP * seconds * SECOND_NS)) :]
    burst = max(fleet.batch, int(np.percentile(counted, 99, method="inverted_cdf")))
    return Envelope(rate_micro=rate_micro, burst_micro=burst * MICRO)


def text_of(buckets: Sequence[Envelope]) -> str:
    """From the least to the largest, as a caption says it."""
    rates, bursts = [one.rate_micro / MICRO for one in buckets], [one.burst_micro // MICRO for one in buckets]
    return f"r = {_span(rates)} msg/s, b = {_span(bursts)}"


def _span(values: Sequence[float]) -> str:
    least, most = min(values), max(values)
    return f"{least:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"


def drawn(fleet: Fleet, seed: int) -> Fleet:
    """``fleet`` as repetition ``seed`` has it: periodic publishers keep their phases from profiling to measuring."""
    return replace(fleet, phase_seed=seed) if fleet.process == "periodic" else fleet


def placed(
    fleet: Fleet, strategy: str, k: int, seed: int, before: Sequence[float] = (), most: float = math.inf
) -> Ints:
    """The publishers on brokers 0..k-1, which have ``before``, msg/s, and shall have at most ``most``, or as little
    more as it takes. lb and maxmin: equal parts; conc: equal totals; srtm: equal parts, every group spread."""
    base = np.array([*before[:k], *([0.0] * (k - len(before)))])
    room = _rooms(base, most, fleet.load)
    quotas = fill(base if strategy == "conc" else np.zeros(k), room, fleet.load)
    groups = fleet.groups if strategy == "srtm" else None
    rates = np.full(fleet.count, fleet.rate)
    return pack(rates, groups, quotas, np.full(k, math.inf), np.random.default_rng(seed))


def _rooms(base: Floats, most: float, load: float) -> Floats:
    room: Floats = np.maximum(most - base, 0.0)
    return room if room.sum() >= load else room + fill(base + room, np.full(len(base), math.inf), load - room.sum())


def loads_of(fleet: Fleet, placement: Ints, k: int) -> list[float]:
    """msg/s of the topic on each of ``k`` brokers."""
    return [float(heads) * fleet.rate for heads in np.bincount(placement[placement >= 0], minlength=k)]


def split(fleet: Fleet, placement: Ints, k: int, bucket: Envelope) -> list[Share]:
    """As in the paper: r and b in proportion to the rates. A broker without publishers has none."""
    loads = loads_of(fleet, placement, k)
    used = np.flatnonzero(loads)
    shares: list[Share] = [(0, 0)] * k
    parts = split_bucket(bucket.rate_micro, bucket.burst_micro, [loads[at] for at in used])
    for at, share in zip(used, parts, strict=True):
        shares[at] = share
    return shares


@dataclass(frozen=True, kw_only=True)
class Result:
    """One layout, run once, its topic within ``bucket``. ``loads``: of the topic on each broker, msg/s."""

    k: int
    bucket: Envelope
    loads: Sequence[float]
    parts: list[Delays]
    pooled: Tail
    worst: Tail

    @property
    def used(self) -> list[Delays]:
        """Of the brokers that have publishers."""
        return [part for part in self.parts if len(part.access_ns)]


def run(
    fleet: Fleet,
    strategy: str,
    k: int,
    seconds: float,
    seed: int,
    machine: Machine = PAPER,
    before: Sequence[Fleet] = (),
    most: float = math.inf,
) -> Result:
    """On ``k`` brokers, which have ``before`` already and shall have at most ``most`` msg/s."""
    fleet = drawn(fleet, seed)
    placement = placed(fleet, strategy, k, seed, [other.load for other in before], most)
    bucket = envelope(fleet, seconds, seed)
    shares = split(fleet, placement, k, bucket)
    parts = simulate(fleet, placement, shares, machine, seconds=seconds, seed=seed, before=before)
    loads = loads_of(fleet, placement, k)
    return Result(k=k, bucket=bucket, loads=loads, parts=parts, pooled=Tail.of(parts), worst=worst(parts))


def attempts(fleet: Fleet, strategy: str, seconds: float, seed: int) -> Callable[[int], Result]:
    """``run`` by the number of idle brokers."""
    return lambda k: run(fleet, strategy, k, seconds, seed)


def fewest(attempt: Callable[[int], Result], least: int, most: int = BROKERS, slo_ns: int = SLO_NS) -> Result:
    """The result on the fewest brokers, from ``least`` on, whose worst broker keeps the SLO; where none does, the best
    one (section 6)."""
    return first_kept((partial(attempt, k) for k in range(least, most + 1)), slo_ns)


def first_kept(attempts: Iterable[Callable[[], Result]], slo_ns: int = SLO_NS) -> Result:
    """The first whose worst broker keeps the SLO; where none does, the best."""
    tried: list[Result] = []
    for attempt in attempts:
        tried.append(attempt())
        if tried[-1].worst.p99_ns <= slo_ns:
            return tried[-1]
    return min(tried, key=lambda result: result.worst.p99_ns)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Of traffic on one broker: that of such publishers as ``one``; of each group those come together there who are on
    the same of ``scattered`` brokers by chance."""

    one: Fleet
    scattered: int = 1

    @classmethod
    def of(cls, fleet: Fleet, strategy: str = "lb", k: int = 1) -> Kind:
        """What a broker's part is like where ``fleet`` is on ``k``: of an equal part of every group under srtm."""
        size = -(-fleet.group_size // k) if strategy == "srtm" else fleet.group_size
        one = replace(fleet, count=1, group_size=size, noise_ns=fleet.noise_ns if size > 1 else 0, phase_seed=1)
        return cls(one=one, scattered=1 if strategy == "srtm" or size == 1 else k)

    def drawn(self, load: float) -> tuple[Fleet, Ints]:
        """So much of it, msg/s: a fleet, and who of it is there (0) and who is not (-1)."""
        fleet = replace(self.one, count=max(1, round(load / self.one.rate)) * self.scattered)
        chance = np.random.default_rng(7).random(fleet.count)
        return fleet, np.where(chance < 1 / self.scattered, 0, -1)


@lru_cache(maxsize=256)
def mcap(
    kind: Kind,
    before: Fleet | None = None,
    machine: Machine = PAPER,
    slo_ns: int = SLO_NS,
    seconds: float = 20.0,
) -> float:
    """The largest load of one broker, msg/s, whose p99 keeps the SLO, without a bucket in the way: of such publishers,
    and of ``before``, which is there already. To ``MCAP_WITHIN``."""
    there = before.load if before else 0.0

    def keeps(load: float) -> bool:
        fleet, placement = kind.drawn(load - there)
        unlimited = [(round(100 * load * MICRO), round(load * MICRO))]
        parts = simulate(fleet, placement, unlimited, machine, seconds=seconds, seed=7, before=[before])
        return Tail.of(parts).p99_ns <= slo_ns

    least, most = _LEAST_SERVED + there, machine.capacity(kind.one.batch, 0) + there
    if not keeps(least):
        return there
    while most > MCAP_WITHIN * least:
        load = math.sqrt(least * most)
        least, most = (load, most) if keeps(load) else (least, load)
    return least


def residual(
    fleet: Fleet,
    strategy: str,
    loads: Sequence[float],
    before: Sequence[Fleet] = (),
    machine: Machine = PAPER,
    slo_ns: int = SLO_NS,
    brokers: int = BROKERS,
) -> float:
    """What all brokers could still take within the SLO, msg/s: each, beside what it had ``before`` and its part of the
    topic (``loads``, msg/s), of such traffic as that part is: process, batch, and as many of a group as come together
    there. Those without a part: of such as the others have."""
    kind = Kind.of(fleet, strategy, max(1, sum(load > 0 for load in loads)))
    left = 0.0
    for at in range(brokers):
        others = before[at] if at < len(before) else None
        load = (loads[at] if at < len(loads) else 0.0) + (others.load if others else 0.0)
        left += max(0.0, mcap(kind, others, machine, slo_ns) - load)
    return left


def by_rate(load: float, rooms: Sequence[float]) -> int:
    """Section 4.2, step 1: how many of the brokers, taken in turn, cover ``load``; all where they do not."""
    covered = np.cumsum(np.maximum(rooms, 0.0))
    return min(len(covered), int(np.searchsorted(covered, load)) + 1)


def ms(ns: float) -> float:
    return ns / (SECOND_NS / 1_000)
