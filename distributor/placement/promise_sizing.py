"""The smallest burst and the smallest rate with which a placed topic keeps its promise. Pure.

Sized on drawn minutes (``srtm.token_bucket.kept_minutes``): enough of them must keep the promise that the lower bound
of their Wilson interval is the confidence. Topics with too many messages to draw are sized by formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.leases import MICRO, Amount
from distributor.placement.share_targets import ShareDemand, target_shares
from srtm.errors import BadInput
from srtm.text import figure
from srtm.token_bucket.assumed_capacity import SERVICE_NS
from srtm.token_bucket.kept_minutes import (
    MINUTE_S,
    Layout,
    Promise,
    Server,
    chance_by_formula,
    minute,
    needed_bursts,
    split,
)
from srtm.token_bucket.wilson import fewest_successes
from srtm.topics.publishers import Floats
from srtm.topics.spec import TopicSpec
from srtm.units import to_micro

CONFIDENCE = 0.95
MINUTES = 300  # as many as tell 0.95 from 0.977
FEWEST_MINUTES = 80  # fewer have a lower bound below 0.95 even if all keep the promise
MOST_MESSAGES = 80_000_000  # in all minutes: less than ten seconds of work
_RATE_MINUTES = 60  # in the search for a rate, which goes over them ten times
_RATE_MESSAGES = 16_000_000  # in these minutes, which stay in memory: 8 bytes each
_FEWEST_RATE_MINUTES = 20  # fewer say too little: by formula
_SEED = 1_000_000  # of the first minute; plans are judged on others
_RATE_STEPS = 6  # halvings of the search for a rate: within 2 % of its slack


@dataclass(frozen=True, kw_only=True, eq=False)
class PromiseSizing:
    """A placed topic. ``services``: ns a message, by broker; where unknown, the assumed."""

    spec: TopicSpec
    placement: Placement
    services: Mapping[str, int] = field(default_factory=dict)

    @property
    def promise(self) -> Promise:
        return promise_of(self.spec)

    def minutes_within(self, messages: float) -> int:
        """Return how many minutes have that many messages, at most ``MINUTES``."""
        return int(min(MINUTES, messages / max(1.0, self.spec.publishers.load * MINUTE_S)))

    def smallest_burst(self, rate: float, confidence: float = CONFIDENCE, most_minutes: int = MINUTES) -> int | None:
        """Return the smallest b with the rate r, messages. None: processing breaks the promise."""
        minutes = min(most_minutes, self.minutes_within(MOST_MESSAGES))
        if not self.placement.brokers:
            return 1
        if minutes < FEWEST_MINUTES or fewest_successes(minutes, confidence) is None:
            return self._burst_by_formula(rate, confidence)
        layout = self.layout(rate)
        needs = np.array([needed_bursts(one, layout.servers, self.promise) for one in self._drawn(minutes)])
        return self._burst_of(needs, rate, confidence)

    def smallest_rate(self, burst_at: Callable[[float], float], confidence: float = CONFIDENCE) -> float | None:
        """Return the smallest r, msg/s, from that of the topic on, to three digits. None: processing breaks it.

        ``burst_at``: the burst that goes with a rate.
        """
        minutes = min(_RATE_MINUTES, self.minutes_within(_RATE_MESSAGES))
        drawn = list(self._drawn(minutes)) if minutes >= _FEWEST_RATE_MINUTES else []

        def keeps(rate: float) -> bool:
            needed = self._burst_from(drawn, rate, confidence) if drawn else self._burst_by_formula(rate, confidence)
            return needed is not None and needed <= burst_at(rate)

        load = self.spec.publishers.load
        least = self.spec.rate
        most = max(least, load * 1.01)
        while not keeps(most):
            least, most = most, load + 2 * (most - load)
            if most > 100 * load:
                return None
        for _ in range(_RATE_STEPS):
            middle = (least + most) / 2
            least, most = (least, middle) if keeps(middle) else (middle, most)
        return rounded_up(most)

    def layout(self, rate: float) -> Layout:
        """Return the topic's layout with the token rate r, msg/s: the parts of the rate do not depend on the burst."""
        shares = zip(self.placement.brokers, self.shares(rate, self._enough_for_all), strict=True)
        servers = [Server(rate=share.rate / MICRO, service_s=self.service_s(name)) for name, share in shares]
        return Layout(at=self.placement.at, servers=tuple(servers))

    def service_s(self, broker: str) -> float:
        """Return what a message takes of ``broker``, s."""
        return self.services.get(broker, SERVICE_NS) / 1e9

    def shares(self, rate: float, burst: float) -> list[Amount]:
        """Return the share of each broker under (r, b)."""
        spec = replace(self.spec, rate=rate)
        envelope = Amount(to_micro(round(rate, 6), "rate"), to_micro(round(burst, 6), "burst"))
        target = target_shares(ShareDemand(spec=spec, envelope=envelope, placement=self.placement))
        return [target[name] for name in self.placement.brokers]

    @property
    def fewest(self) -> int:
        """The least burst that the topic may have: a token a broker, and its largest batch."""
        return max(1, len(self.placement.brokers), self.spec.publishers.largest_batch)

    @property
    def _enough_for_all(self) -> float:
        return float(max(self.fewest, sum(one.batch for one in self.placement.traffic.values())))

    def _drawn(self, minutes: int) -> Iterator[list[Floats]]:
        brokers = len(self.placement.brokers)
        for number in range(minutes):
            yield split(minute(self.spec.publishers, _SEED + number), self.placement.at, brokers)

    def _burst_from(self, drawn: Sequence[Sequence[Floats]], rate: float, confidence: float) -> int | None:
        servers = self.layout(rate).servers
        needs = np.array([needed_bursts(one, servers, self.promise) for one in drawn])
        return self._burst_of(needs, rate, confidence)

    def _burst_of(self, needs: Floats, rate: float, confidence: float) -> int | None:
        """``needs[minute, broker]``: the smallest burst of the broker in that minute."""
        part = (fewest_successes(MINUTES, confidence) or MINUTES) / MINUTES  # of fewer minutes the same part
        enough = fewest_successes(len(needs), confidence) if len(needs) >= FEWEST_MINUTES else None
        wanted = math.ceil(len(needs) * part) if enough is None else enough
        if np.isfinite(needs).all(axis=1).sum() < wanted:
            return None

        def keeps(burst: int) -> bool:
            mine = np.array([share.burst / MICRO for share in self.shares(rate, burst)])
            return bool((needs <= mine).all(axis=1).sum() >= wanted)

        return self._smallest(keeps)

    def _burst_by_formula(self, rate: float, confidence: float) -> int | None:
        traffic, servers = list(self.placement.traffic.values()), self.layout(rate).servers

        def keeps(burst: int) -> bool:
            mine = [share.burst / MICRO for share in self.shares(rate, burst)]
            return chance_by_formula(traffic, servers, mine, self.promise) >= confidence

        return self._smallest(keeps)

    def _smallest(self, keeps: Callable[[int], bool]) -> int | None:
        least = most = self.fewest
        while not keeps(most):
            least, most = most + 1, 2 * most
            if most > self.spec.publishers.load * MINUTE_S + 2 * self.fewest:  # all messages of a minute at once
                return None
        while least < most:
            middle = (least + most) // 2
            least, most = (least, middle) if keeps(middle) else (middle + 1, most)
        return least


def promise_of(spec: TopicSpec) -> Promise:
    return Promise(percentile=spec.slo.percentile, latency_s=spec.slo.latency_ms / 1e3)


def rounded_up(rate: float) -> float:
    """Return ``rate`` rounded up to three digits."""
    step = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return float(f"{math.ceil(round(rate / step, 9)) * step:.6g}")


def most_burst(spec: TopicSpec, rate: float | None = None) -> float:
    """Return the largest burst that "auto" may take, messages."""
    return float(max(1, math.floor(spec.max_burst_s * (spec.rate if rate is None else rate))))


def auto_burst(spec: TopicSpec, placement: Placement, brokers: int = 1) -> float:
    """Return what ``burst = "auto"`` comes to under ``placement``.

    At least a token for each of ``brokers``, as far as ``most_burst`` allows: publishers may come to any of them, and a
    share needs a token.

    Where processing breaks the promise, no burst helps: then the one that keeps the access delay is right. Raises
    BadInput if more than ``most_burst`` is needed.
    """
    sizing = PromiseSizing(spec=spec, placement=placement)
    needed = sizing.smallest_burst(spec.rate)
    if needed is None:
        sizing = PromiseSizing(spec=spec, placement=placement, services=dict.fromkeys(placement.brokers, 0))
        needed = sizing.smallest_burst(spec.rate)
    most = most_burst(spec)
    if needed is not None and needed <= max(most, sizing.fewest):
        return max(float(needed), min(float(brokers), most))
    rate = sizing.smallest_rate(lambda rate: most_burst(spec, rate))
    wanted = "more than any" if needed is None else f"{needed:,}"
    rule = f"needs {wanted} messages, but max_burst_s = {figure(spec.max_burst_s, 6)} allows {figure(most, 6)}"
    raise BadInput("burst", "auto", rule if rate is None else f"{rule}; with rate = {rate:.6g} it does")
