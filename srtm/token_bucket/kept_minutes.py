"""Tells in how many minutes a promise is kept: each minute is an independent draw of the publishers' process.

Let message i arrive at a_i, and let its broker have the share (r, b) and one server that takes s a message. Without
the bucket it would leave at A_i, by Lindley's recursion. Messages pass the bucket at max(a_i, W_i + (i + 1 - b) / r),
where W_i is the running maximum of a_j - j / r (appendix A, Eq. 2). So it leaves at max(A_i, B_i - b / r), and neither
A_i nor B_i depends on b. It is in time, within L, if A_i - a_i <= L and b >= r (B_i - a_i - L). The percentile of these
bursts is the smallest b with which the broker keeps its promise in this minute. One pass finds it.

Where a minute has too many messages to draw, a formula answers (``chance_by_formula``). Late messages come in clumps:
a Poisson process, each about exponential in length with the mean I lambda / (2 (r - lambda)^2), the time that a
Brownian motion with the drift and variance of the work spends above a level (Aldous, "Probability Approximations via
the Poisson Clumping Heuristic", section D). The promise is kept if their sum is at most (1 - p) of the minute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from srtm.token_bucket.arrival_process import Sent, sent
from srtm.token_bucket.fitted_split import Traffic, tail_of
from srtm.topics.publishers import Floats, Ints, Publishers

MINUTE_S = 60.0
_NORMAL_ABOVE = 10_000.0  # expected clumps: above it the normal distribution is exact to 1 %


@dataclass(frozen=True, kw_only=True)
class Promise:
    """``percentile`` per cent of the messages of every broker take at most ``latency_s``."""

    percentile: float
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Server:
    """A broker as one topic meets it, but for its burst."""

    rate: float  # r_l, msg/s
    service_s: float  # of one message


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """``at[i]``: index into ``servers`` of the broker of publisher i; below 0: none."""

    at: Ints
    servers: tuple[Server, ...]


def minute(publishers: Publishers, seed: int) -> Sent:
    """Draw the minute of this seed."""
    return sent(publishers, MINUTE_S, seed)


def split(drawn: Sent, at: Ints, brokers: int) -> list[Floats]:
    """Return the arrivals of each broker, s, in order."""
    broker = at[drawn.publisher]
    arrival_s = drawn.arrival_ns / 1e9
    return [arrival_s[broker == index] for index in range(brokers)]


def needed_bursts(arrivals_s: Iterable[Floats], servers: Iterable[Server], promise: Promise) -> list[float]:
    """Return the smallest burst of each broker that keeps the promise; infinite: none does."""
    return [needed_burst(instants_s, server, promise) for instants_s, server in zip(arrivals_s, servers, strict=True)]


def needed_burst(arrival_s: Floats, server: Server, promise: Promise) -> float:
    """Return the smallest burst, messages, that keeps the promise at a broker; infinite: processing breaks it."""
    count = len(arrival_s)
    if count == 0:
        return 0.0
    if server.rate <= 0:
        return math.inf
    index, service_s, rate = np.arange(count), server.service_s, server.rate
    alone_s = np.maximum.accumulate(arrival_s - index * service_s) + (index + 1) * service_s
    paid_s = np.maximum.accumulate(arrival_s - index / rate) + (index + 1) / rate
    left_s = np.maximum.accumulate(paid_s - index * service_s) + (index + 1) * service_s
    needed = rate * (left_s - arrival_s - promise.latency_s)
    needed[alone_s - arrival_s > promise.latency_s] = math.inf
    at = max(0, math.ceil(round(count * promise.percentile / 100, 6)) - 1)
    return float(np.partition(needed, at)[at])


def chance_by_formula(
    traffic: Sequence[Traffic], servers: Sequence[Server], bursts: Sequence[float], promise: Promise
) -> float:
    """Return about the chance that a minute keeps the promise on all brokers, taken as independent."""
    return math.prod(
        _chance(at_broker, server, burst, promise)
        for at_broker, server, burst in zip(traffic, servers, bursts, strict=True)
    )


def _chance(traffic: Traffic, server: Server, burst: float, promise: Promise) -> float:
    margin = server.rate - traffic.rate
    left_s = promise.latency_s - processing_s(traffic, server.service_s, promise.percentile)
    if traffic.rate <= 0:
        return 1.0
    if margin <= 0 or left_s < 0:
        return 0.0
    late = tail_of(traffic, margin).chance_above(burst - 1 + server.rate * left_s)
    clump_s = traffic.dispersion * traffic.rate / (2 * margin**2)
    allowed = 1 - promise.percentile / 100
    return _fewer(MINUTE_S * late / clump_s, MINUTE_S * allowed / clump_s)


def _fewer(mean: float, other: float) -> float:
    """Return P(N <= M) of Poisson variables with these means.

    A sum of N exponential lengths is at most y if and only if a Poisson process has at least N points in y.
    """
    if mean + other > _NORMAL_ABOVE:
        return 0.5 * math.erfc((mean - other - 0.5) / math.sqrt(2 * (mean + other)))
    most = math.ceil(max(mean, other) + 12 * math.sqrt(max(mean, other)) + 20)
    return min(1.0, float(np.dot(_poisson(other, most), np.cumsum(_poisson(mean, most)))))


def _poisson(mean: float, most: int) -> Floats:
    number = np.arange(most + 1)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(number[1:]))])
    chances: Floats = np.exp(number * math.log(max(mean, 1e-300)) - mean - factorial)
    return chances


def processing_s(traffic: Traffic, service_s: float, percentile: float) -> float:
    """Return about the percentile of the time at the server, s, as if no bucket were before it.

    It is that of the last of the messages that come together. Infinite: the server cannot keep up.
    """
    if not service_s or not traffic.rate:
        return service_s
    rate = 1 / service_s
    if rate <= traffic.rate:
        return math.inf
    scale = traffic.dispersion * traffic.rate / (2 * (rate - traffic.rate))
    found = max(0.0, scale * math.log(traffic.rate / rate * 100 / (100 - percentile)))
    return (found + max(1.0, traffic.dispersion)) / rate
