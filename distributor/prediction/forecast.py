"""What a placement would do to a topic's messages, before anybody is moved: access and processing delay per broker,
and the DRL penalty against one bucket. Pure.

The publishers' process is simulated from a seed (``srtm.token_bucket.arrival_process``) and put through exact buckets
(``srtm.token_bucket.replay``) and one server a broker (``replay``), all full and idle at first. Where a stretch long
enough to say anything would take too many messages, the answer is by formula, in heavy traffic
(``srtm.token_bucket.fitted_split`` has it): unfinished work U exceeds x messages at a server of rate r with a
probability of about exp(-theta x), theta = 2 (r - lambda) / (I lambda). A message waits longer than d for a token if U
+ 1 - b exceeds r d; so the percentile of the wait, and its mean exp(-theta (b - 1)) / (theta r), follow. The result
says which of the two it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.columns import NOWHERE, Ints
from distributor.model.leases import MICRO, Amount
from distributor.prediction.replay import Latency, Trace, delays, latency
from srtm.errors import BadInput
from srtm.token_bucket.arrival_process import Sent, sent
from srtm.token_bucket.assumed_capacity import SERVICE_NS
from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.fitted_split import Traffic
from srtm.token_bucket.kept_minutes import processing_s
from srtm.token_bucket.replay import penalty
from srtm.topics.publishers import Publishers

MOST_MESSAGES = 200_000  # simulated: a third of a second of work; what fires together leaves p99 uncertain all the same
LONGEST_S = 600.0
SHORTEST_S = 2.0  # of simulated traffic: with less, buckets that start full hide what would come

Method = Literal["simulation", "formula"]
Source = Literal["measured", "laboratory", "assumed"]


@dataclass(frozen=True)
class Service:
    """What one message takes of a broker, ns, and how that is known."""

    ns: int
    source: Source


ASSUMED = Service(SERVICE_NS, "assumed")


@dataclass(frozen=True, kw_only=True)
class Delay:
    """At the percentile of the promise, ms; infinite where the broker cannot keep up."""

    access_ms: float
    processing_ms: float
    total_ms: float  # of the sum of both, which is not the sum of the two (by formula it is taken for that)


@dataclass(frozen=True, kw_only=True)
class PenaltyForecast:
    """Access delay of the split less that of one (r, b) bucket on the same merged arrivals (section 2.1)."""

    sum_ms: float  # over all messages: never negative where the shares sum to (r, b), Proposition 1
    mean_ms: float  # the same per message
    p99_ms: float  # the difference of the two percentiles: may be negative
    one_mean_ms: float  # of the one bucket
    one_p99_ms: float


NO_PENALTY = PenaltyForecast(sum_ms=0.0, mean_ms=0.0, p99_ms=0.0, one_mean_ms=0.0, one_p99_ms=0.0)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    method: Method
    seconds: float  # of traffic
    messages: int
    brokers: Mapping[str, Delay]
    penalty: PenaltyForecast

    @property
    def worst(self) -> Delay:
        """Of the broker with the largest total: a topic is judged per broker, and the worst decides."""
        none = Delay(access_ms=0.0, processing_ms=0.0, total_ms=0.0)
        return max(self.brokers.values(), key=lambda delay: delay.total_ms, default=none)


class Simulation:
    """One stretch of a topic's traffic, on which placements are compared. ``seconds``: how much of it."""

    def __init__(self, publishers: Publishers, percentile: float, envelope: Amount, seed: int) -> None:
        self.seconds = min(LONGEST_S, MOST_MESSAGES / max(publishers.load, 1e-9))
        self._publishers = publishers
        self._percentile = percentile
        self._envelope = envelope
        self._seed = seed

    @property
    def method(self) -> Method:
        return "simulation" if self.seconds >= SHORTEST_S else "formula"

    @cached_property
    def _sent(self) -> Sent:
        return sent(self._publishers, self.seconds, self._seed)

    @cached_property
    def _everybody(self) -> Traffic:
        return _merged(self._publishers, np.zeros(len(self._publishers.ids), dtype=np.int64))

    def forecast(self, placement: Placement, shares: Mapping[str, Amount], services: Mapping[str, Service]) -> Forecast:
        """Of those publishers that have a broker. ``services``: of brokers that are not in it, ``ASSUMED``."""
        if not placement.brokers:
            return Forecast(method=self.method, seconds=self.seconds, messages=0, brokers={}, penalty=NO_PENALTY)
        given = [shares[name] for name in placement.brokers]
        if self.method == "simulation":
            try:
                return self._simulated(placement, given, services)
            except (BadInput, OverflowError):  # messages would wait for ever, or for longer than 64 bits can tell
                pass
        return self._by_formula(placement, given, services)

    def _simulated(self, placement: Placement, shares: Sequence[Amount], services: Mapping[str, Service]) -> Forecast:
        who, when = self._sent.publisher, self._sent.arrival_ns
        trace = Trace(publisher=who, arrival_ns=when, service_ns=np.ones(len(when), dtype=np.int64))
        parts = trace.by_broker(placement.at, len(placement.brokers))
        found = {}
        for name, part, share in zip(placement.brokers, parts, shares, strict=True):
            served = part.slower(services.get(name, ASSUMED).ns)
            found[name] = _delay(latency([delays(served, (share.rate, share.burst))], self._percentile))
        split = [part.arrival_ns for part in parts]
        micro = [(share.rate, share.burst) for share in shares]
        cost = penalty(split, micro, self._envelope.rate, self._envelope.burst)
        return Forecast(
            method="simulation",
            seconds=self.seconds,
            messages=cost.one.count,
            brokers=found,
            penalty=PenaltyForecast(
                sum_ms=cost.sum_ns / 1e6,
                mean_ms=cost.mean_ns / 1e6,
                p99_ms=cost.p99_ns / 1e6,
                one_mean_ms=cost.one.mean_ns / 1e6,
                one_p99_ms=cost.one.p99_ns / 1e6,
            ),
        )

    def _by_formula(self, placement: Placement, shares: Sequence[Amount], services: Mapping[str, Service]) -> Forecast:
        traffic = list(placement.traffic.values())
        waits = [_wait(at_broker, share, self._percentile) for at_broker, share in zip(traffic, shares, strict=True)]
        found = {}
        for name, at_broker, wait in zip(placement.brokers, traffic, waits, strict=True):
            processing_ms = 1e3 * processing_s(at_broker, services.get(name, ASSUMED).ns / 1e9, self._percentile)
            found[name] = Delay(access_ms=wait.at_ms, processing_ms=processing_ms, total_ms=wait.at_ms + processing_ms)
        everywhere = self._everybody if (placement.at != NOWHERE).all() else _merged(placement.publishers, placement.at)
        whole = _wait(everywhere, self._envelope, 99.0)
        load = sum(part.rate for part in traffic)
        mean_ms = sum(part.rate * wait.mean_ms for part, wait in zip(traffic, waits, strict=True)) / max(load, 1e-9)
        messages = round(load * self.seconds)
        return Forecast(
            method="formula",
            seconds=self.seconds,
            messages=messages,
            brokers=found,
            penalty=PenaltyForecast(
                sum_ms=(mean_ms - whole.mean_ms) * messages,
                mean_ms=mean_ms - whole.mean_ms,
                p99_ms=_pooled_p99_ms(traffic, shares) - whole.at_ms,
                one_mean_ms=whole.mean_ms,
                one_p99_ms=whole.at_ms,
            ),
        )


def _delay(measured: Latency) -> Delay:
    return Delay(
        access_ms=measured.access_ns / 1e6, processing_ms=measured.processing_ns / 1e6, total_ms=measured.total_ns / 1e6
    )


def _merged(publishers: Publishers, at: Ints) -> Traffic:
    """On one broker, of all that have one."""
    return traffic_of(publishers, np.where(at == NOWHERE, NOWHERE, 0), 1)[0]


@dataclass(frozen=True)
class _Wait:
    at_ms: float  # at the percentile
    mean_ms: float


def _theta(traffic: Traffic, rate: float) -> float:
    """1 / messages; 0 where the server of ``rate`` msg/s cannot keep up."""
    return max(0.0, 2 * (rate - traffic.rate) / (traffic.dispersion * traffic.rate)) if traffic.rate > 0 else math.inf


def _wait(traffic: Traffic, share: Amount, percentile: float) -> _Wait:
    rate, burst = share.rate / MICRO, share.burst / MICRO
    theta = _theta(traffic, rate)
    if theta == 0:
        return _Wait(math.inf, math.inf)
    work = math.log(100 / (100 - percentile)) / theta
    return _Wait(1e3 * max(0.0, work + 1 - burst) / rate, 1e3 * math.exp(-theta * (burst - 1)) / (theta * rate))


def _pooled_p99_ms(traffic: Sequence[Traffic], shares: Sequence[Amount]) -> float:
    """The wait that 1 % of all messages exceed, over all brokers together."""
    load = sum(at_broker.rate for at_broker in traffic)
    rates = [share.rate / MICRO for share in shares]
    pairs = [
        (at_broker.rate / load, _theta(at_broker, rate), rate, share.burst / MICRO)
        for at_broker, rate, share in zip(traffic, rates, shares, strict=True)
    ]
    if any(theta == 0 for _, theta, _, _ in pairs):
        return math.inf

    def late(after_s: float) -> float:
        return sum(part * math.exp(-theta * max(0.0, rate * after_s + burst - 1)) for part, theta, rate, burst in pairs)

    least_s, most_s = 0.0, max(math.log(100) / theta / rate for _, theta, rate, _ in pairs)
    if late(0.0) <= 0.01:
        return 0.0
    for _ in range(60):
        middle_s = (least_s + most_s) / 2
        least_s, most_s = (middle_s, most_s) if late(middle_s) > 0.01 else (least_s, middle_s)
    return 1e3 * most_s
