"""Other ways to hold several brokers to one (r, b), in virtual time, on given arrivals. Pure.

An even split is what Envoy's ``local_cluster_rate_limit`` and Tyk's rate limiter make of a limit: every node a bucket
of r / n and b / n, which refuses. A central bucket (a Lua script in Redis) decides every message after half a round
trip, one at a time. Flow proportional share and global random drop are Raghavan et al., "Cloud Control with
Distributed Rate Limiting" (SIGCOMM 2007), which drop too: every estimation interval each limiter smooths its own
demand, tells the others (its branching factor of 3 reaches all of up to four), and sets its limit, or its chance to
drop, by what it last heard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from adaptor.observations import Envelope, Shares
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from srtm.token_bucket.bucket import TOKEN
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.replay import due_instants
from srtm.units import MICRO

INTERVAL_S, SMOOTHING, BRANCHING = 0.5, 0.1, 3
ONE_WAY_S = 0.01  # as long as a controller's word takes (``bench.simulation.shifting_traffic.Delay``)


@dataclass(frozen=True)
class Limited:
    """What became of all messages: of those let go, arrival and instant (ns); the others were refused or dropped.
    ``wire``: messages of control, decisions of a central bucket among them; ``stuck``: messages that wait on a broker
    whose last share lets none go."""

    arrival_ns: Ints
    gone_ns: Ints
    dropped: int
    wire: int
    stuck: int = 0

    @property
    def delay_ns(self) -> Ints:
        return self.gone_ns - self.arrival_ns


def equal_shares(envelope: Envelope, brokers: int) -> Shares:
    return split_bucket(envelope.rate_micro, envelope.burst_micro, [1.0] * brokers)


def even(arrivals_ns: Sequence[Ints], envelope: Envelope) -> Limited:
    """Buckets that refuse; nobody says anything."""
    shares = equal_shares(envelope, len(arrivals_ns))
    kept = [_policed(came, _Bucket(*share)) for came, share in zip(arrivals_ns, shares, strict=True)]
    return _of_kept(arrivals_ns, kept, wire=0)


def central(arrivals_ns: Sequence[Ints], envelope: Envelope, round_trip_ns: int, decision_ns: int) -> Limited:
    """One bucket behind half of ``round_trip_ns``, which takes ``decision_ns`` for each message, in order; it answers
    when the message may go, and the answer takes the other half."""
    arrival = np.sort(np.concatenate(list(arrivals_ns)))
    there = _served(arrival + round_trip_ns // 2, decision_ns)
    gone = due_instants(there, envelope.rate_micro, envelope.burst_micro) + (round_trip_ns - round_trip_ns // 2)
    return Limited(arrival, gone, 0, 2 * len(arrival))


def flow_proportional(arrivals_ns: Sequence[Ints], envelope: Envelope, flow_rate: float, ends_ns: int) -> Limited:
    """Flow proportional share. ``flow_rate``: msg/s of a publisher, the largest flow of any limiter. A limiter that
    could use more than it has weighs as many such flows as it has demand for; one that could not, what leaves it its
    demand. Every bucket holds one token at least, where the parts of b together exceed it: less lets nothing go, ever.
    """
    limit = envelope.rate_micro / MICRO
    count = len(arrivals_ns)
    weights, heard = [1.0] * count, [1.0] * count
    buckets = [_Bucket(*share) for share in equal_shares(envelope, count)]

    def settle(demands: Sequence[float]) -> None:
        heard[:] = weights
        for at, demand in enumerate(demands):
            others = sum(heard) - heard[at]
            mine = buckets[at].rate_micro / MICRO
            if demand >= min(mine, limit) or others == 0:
                weights[at] = max(demand, flow_rate) / flow_rate
            else:
                weights[at] = max(demand * others / (limit - demand), 1e-6)
            part = weights[at] / (weights[at] + others)
            buckets[at].set(round(part * envelope.rate_micro), max(round(part * envelope.burst_micro), MICRO))

    return _in_intervals(arrivals_ns, ends_ns, lambda at, came: _policed(came, buckets[at]), settle)


def random_drop(arrivals_ns: Sequence[Ints], envelope: Envelope, ends_ns: int, seed: int) -> Limited:
    """Global random drop: where all demand together is above r, each message is dropped with the same chance. There is
    no bucket, so b is not kept."""
    limit = envelope.rate_micro / MICRO
    dice = np.random.default_rng([seed, 0xD])
    told = [0.0] * len(arrivals_ns)
    chances = [0.0] * len(arrivals_ns)

    def settle(demands: Sequence[float]) -> None:
        heard = list(told)
        told[:] = demands
        for at, demand in enumerate(demands):
            whole = demand + sum(heard) - heard[at]
            chances[at] = max(0.0, 1.0 - limit / whole) if whole else 0.0

    def pass_on(at: int, came: Ints) -> Ints:
        return came[dice.random(len(came)) >= chances[at]]

    return _in_intervals(arrivals_ns, ends_ns, pass_on, settle)


class _Bucket:
    """One that refuses what finds no token. Whole units, as the engine's; starts full."""

    def __init__(self, rate_micro: int, burst_micro: int) -> None:
        self.rate_micro = rate_micro
        self._full = burst_micro * (TOKEN // MICRO)
        self._fill = self._full
        self._at_ns = 0

    def set(self, rate_micro: int, burst_micro: int) -> None:
        """A shrink clamps the fill, a growth mints nothing. What accrued before comes under the new rate: at most an
        interval between two messages."""
        self.rate_micro = rate_micro
        self._full = burst_micro * (TOKEN // MICRO)
        self._fill = min(self._fill, self._full)

    def take(self, at_ns: int) -> bool:
        self._fill = min(self._full, self._fill + self.rate_micro * (at_ns - self._at_ns))
        self._at_ns = at_ns
        if self._fill < TOKEN:
            return False
        self._fill -= TOKEN
        return True


def _policed(came: Ints, bucket: _Bucket) -> Ints:
    return np.array([at_ns for at_ns in came.tolist() if bucket.take(at_ns)], dtype=np.int64)


def _in_intervals(
    arrivals_ns: Sequence[Ints],
    ends_ns: int,
    pass_on: Callable[[int, Ints], Ints],
    settle: Callable[[Sequence[float]], None],
) -> Limited:
    """``settle`` is told the smoothed demands, msg/s, when those of an interval have reached the others."""
    interval_ns, one_way_ns = round(INTERVAL_S * SECOND_NS), round(ONE_WAY_S * SECOND_NS)
    count = len(arrivals_ns)
    demands = [0.0] * count
    kept: list[list[Ints]] = [[] for _ in arrivals_ns]
    wire, from_ns = 0, 0
    for end_ns in range(interval_ns, ends_ns + interval_ns, interval_ns):
        until_ns = end_ns + one_way_ns
        for at, came in enumerate(arrivals_ns):
            kept[at].append(pass_on(at, _within(came, from_ns, until_ns)))
            rate = len(_within(came, end_ns - interval_ns, end_ns)) / INTERVAL_S
            is_first = end_ns == interval_ns
            demands[at] = rate if is_first else (1 - SMOOTHING) * demands[at] + SMOOTHING * rate
        settle(demands)
        wire += count * min(BRANCHING, count - 1)
        from_ns = until_ns
    return _of_kept(arrivals_ns, [np.concatenate(some) for some in kept], wire)


def _within(came: Ints, from_ns: int, until_ns: int) -> Ints:
    first, last = np.searchsorted(came, [from_ns, until_ns])
    return came[first:last]


def _served(arrival_ns: Ints, each_ns: int) -> Ints:
    """When one server that takes them in turn is done with each."""
    index = np.arange(len(arrival_ns), dtype=np.int64)
    return np.maximum.accumulate(arrival_ns - index * each_ns) + (index + 1) * each_ns


def _of_kept(arrivals_ns: Sequence[Ints], kept: Sequence[Ints], wire: int) -> Limited:
    gone = np.sort(np.concatenate(list(kept)))
    return Limited(gone, gone, sum(map(len, arrivals_ns)) - len(gone), wire)
