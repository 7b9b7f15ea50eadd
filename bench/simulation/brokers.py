"""Brokers in numbers: arrivals -> assignment -> sub-token buckets -> servers -> latency. No clock, no sockets.

The bucket is the engine's own, exact to the nanosecond (``srtm._native.Station``). Behind it a server takes messages
first come, first served, the topic's and those of the load that was there before. What a message takes of it depends on
how many it came with (each firing wakes a connection once) and on how many publishers are connected; both are measured
on a real broker by ``srtm bench calibrate``. In the laboratory one more server follows, which takes the same time for
every message (``srtm broker --lab-service-time``). What wake-ups and writes take besides keeps no server busy; it is
drawn of what was seen of messages of the same kind (``Paths``).

Delays are in ns. A run begins with full buckets and idle servers, and its first part, ``WARM_UP`` of it, is not
counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from bench.simulation.traffic import SECOND_NS, Fleet
from srtm._native import Station

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Share = tuple[int, int]  # (r_l, b_l) in micro-messages

WARM_UP = 0.1
_UNSTOPPED = 0.99
_NO_LIMIT: Share = (2**62, 2**62)


@dataclass(frozen=True, kw_only=True)
class PathDelay:
    """What a message takes besides, without keeping a server busy, ns: each as likely as the others. ``waited``: where
    it had to wait for tokens, and is let go by a timer and not by what a socket says."""

    at_once: tuple[int, ...] = (0,)
    waited: tuple[int, ...] = (0,)

    def drawn(self, waited: Bools, rng: np.random.Generator) -> Ints:
        """Of so many messages."""
        found = _drawn(self.at_once, len(waited), rng)
        found[waited] = _drawn(self.waited, int(np.count_nonzero(waited)), rng)
        return found

    def without_stops(self) -> PathDelay:
        return PathDelay(at_once=_unstopped(self.at_once), waited=_unstopped(self.waited))


def _drawn(values: tuple[int, ...], count: int, rng: np.random.Generator) -> Ints:
    if len(values) == 1:
        return np.full(count, values[0], dtype=np.int64)
    return rng.choice(np.array(values, dtype=np.int64), count)


def _unstopped(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(values)[: math.ceil(_UNSTOPPED * len(values))])


@dataclass(frozen=True, kw_only=True)
class Paths:
    """By how a message came: alone, or with others in one batch, which share a wake-up and wait for each other's
    writing."""

    single: PathDelay = PathDelay()
    batched: PathDelay = PathDelay()

    def of(self, batch: int) -> PathDelay:
        return self.single if batch == 1 else self.batched

    def without_stops(self) -> Paths:
        return Paths(single=self.single.without_stops(), batched=self.batched.without_stops())


NO_PATHS = Paths()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a broker is made of. ``lab_ns``: of the laboratory's server behind it; 0: there is none."""

    message_ns: float
    firing_ns: float = 0.0  # once for all messages that a publisher sends at once
    connection_ns: float = 0.0  # of each message, for every publisher connected
    paths: Paths = NO_PATHS
    lab_ns: float = 0.0

    def mean_ns(self, batch: int, publishers: int) -> float:
        """What a message takes of the server."""
        return self.message_ns + self.firing_ns / batch + self.connection_ns * publishers

    def capacity(self, batch: int, publishers: int) -> float:
        """msg/s that keep the server busy, or the laboratory's."""
        return SECOND_NS / max(self.mean_ns(batch, publishers), self.lab_ns)

    def without_stops(self) -> Machine:
        """Its ``paths`` but for the slowest hundredth."""
        return replace(self, paths=self.paths.without_stops())


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Of each message of the topic on one broker, in order of arrival; ``NEVER_NS`` of access: no token ever comes."""

    access_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    processing_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Iterable[Delays]) -> Delays:
        """Of several brokers, one after the other."""
        several = list(parts)
        return cls(
            access_ns=np.concatenate([part.access_ns for part in several]),
            processing_ns=np.concatenate([part.processing_ns for part in several]),
        )

    @property
    def total_ns(self) -> Ints:
        return np.where(self.access_ns == Station.NEVER_NS, Station.NEVER_NS, self.access_ns + self.processing_ns)


def simulate(
    fleet: Fleet,
    placement: Ints,
    shares: Sequence[Share],
    machine: Machine,
    *,
    seconds: float,
    seed: int,
    before: Sequence[Fleet | None] = (),
) -> list[Delays]:
    """One entry a broker, of which there are ``len(shares)``. ``before``: the load that each broker has already."""
    rng = np.random.default_rng(seed)
    found = []
    for broker, arrival_ns in enumerate(fleet.arrivals(placement, len(shares), seconds, rng)):
        others = before[broker] if broker < len(before) else None
        here = int(np.count_nonzero(placement == broker))
        delays = _broker(fleet, here, arrival_ns, shares[broker], machine, others, seconds, rng)
        counted = slice(int(np.searchsorted(arrival_ns, round(WARM_UP * seconds * SECOND_NS))), None)
        found.append(Delays(access_ns=delays.access_ns[counted], processing_ns=delays.processing_ns[counted]))
    return found


def serve(
    arrival_ns: Ints, share: Share, machine: Machine, *, batch: int, publishers: int, rng: np.random.Generator
) -> Delays:
    """What one broker makes of these arrivals, in order, drawn or recorded, in batches from so many ``publishers``. Its
    bucket is full at 0."""
    service_ns = round(machine.mean_ns(batch, publishers))
    station = Station(*share, [service_ns], 1, int(rng.integers(1, 2**62)))
    access_ns, processing_ns = _run(station, arrival_ns)
    if machine.lab_ns:
        passed = access_ns != Station.NEVER_NS
        due_ns = arrival_ns[passed] + access_ns[passed]
        processing_ns = processing_ns.copy()
        processing_ns[passed] = _in_laboratory(machine, due_ns, processing_ns[passed])
    return _with_path(machine.paths.of(batch), access_ns, processing_ns, rng)


def _with_path(path: PathDelay, access_ns: Ints, processing_ns: Ints, rng: np.random.Generator) -> Delays:
    return Delays(access_ns=access_ns, processing_ns=processing_ns + path.drawn(access_ns > 0, rng))


def _in_laboratory(machine: Machine, due_ns: Ints, processing_ns: Ints) -> Ints:
    """What its server makes of ``processing_ns`` on those before it."""
    left_ns = due_ns + processing_ns
    order = np.argsort(left_ns, kind="stable")
    _, served_ns = _run(Station(*_NO_LIMIT, [round(machine.lab_ns)]), left_ns[order])
    found = processing_ns.copy()
    found[order] += served_ns
    return found


def _broker(
    fleet: Fleet,
    publishers: int,
    arrival_ns: Ints,
    share: Share,
    machine: Machine,
    others: Fleet | None,
    seconds: float,
    rng: np.random.Generator,
) -> Delays:
    if others is None or not others.count:
        return serve(arrival_ns, share, machine, batch=fleet.batch, publishers=publishers, rng=rng)
    seed = int(rng.integers(1, 2**62))
    access_ns, _ = _run(Station(*share, [0], 1, seed), arrival_ns)
    passed = access_ns != Station.NEVER_NS
    due_ns = arrival_ns[passed] + access_ns[passed]
    theirs = others.arrivals(np.zeros(others.count, dtype=np.int64), 1, seconds, rng)[0]
    together = np.concatenate([due_ns, theirs])
    order = np.argsort(together, kind="stable")
    service_ns = round(_mixed(machine, [(fleet, publishers), (others, others.count)]))
    _, served_ns = _run(Station(*_NO_LIMIT, [service_ns]), together[order])
    if machine.lab_ns:
        served_ns = _in_laboratory(machine, together[order], served_ns)
    processing_ns = np.zeros(len(arrival_ns), dtype=np.int64)
    took_ns = np.empty_like(served_ns)
    took_ns[order] = served_ns
    processing_ns[passed] = took_ns[: len(due_ns)]
    return _with_path(machine.paths.of(fleet.batch), access_ns, processing_ns, rng)


def _mixed(machine: Machine, parts: Sequence[tuple[Fleet, int]]) -> float:
    """What a message takes in the mean where ``(fleet, how many of its publishers)`` share the server."""
    publishers = sum(count for _, count in parts)
    loads = [count * fleet.rate for fleet, count in parts]
    means = [machine.mean_ns(fleet.batch, publishers) for fleet, _ in parts]
    return float(np.average(means, weights=loads))


def _run(station: Station, arrival_ns: Ints) -> tuple[Ints, Ints]:
    access, processing = station.run(np.ascontiguousarray(arrival_ns).data)
    return np.frombuffer(access, dtype=np.int64), np.frombuffer(processing, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Percentiles of one run, ns: the smallest delay that so many messages do not exceed."""

    count: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    access_p99_ns: int
    processing_p99_ns: int
    access_mean_ns: float

    @classmethod
    def of(cls, parts: Sequence[Delays]) -> Tail:
        """Over all messages of ``parts`` together."""
        delays = Delays.joined(parts)
        access_ns, processing_ns, total_ns = delays.access_ns, delays.processing_ns, delays.total_ns
        if not len(total_ns):
            return cls(count=0, p50_ns=0, p95_ns=0, p99_ns=0, access_p99_ns=0, processing_p99_ns=0, access_mean_ns=0.0)
        p50, p95, p99 = (int(at) for at in np.percentile(total_ns, [50, 95, 99], method="inverted_cdf"))
        return cls(
            count=len(total_ns),
            p50_ns=p50,
            p95_ns=p95,
            p99_ns=p99,
            access_p99_ns=int(np.percentile(access_ns, 99, method="inverted_cdf")),
            processing_p99_ns=int(np.percentile(processing_ns, 99, method="inverted_cdf")),
            access_mean_ns=float(access_ns.mean()),
        )


def worst(parts: Sequence[Delays]) -> Tail:
    """The broker with the largest p99: a promise is judged broker by broker."""
    tails = [Tail.of([part]) for part in parts if len(part.access_ns)]
    return max(tails, key=lambda tail: tail.p99_ns, default=Tail.of([Delays()]))
