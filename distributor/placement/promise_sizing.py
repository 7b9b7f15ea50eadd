"""The smallest burst and the smallest rate with which a placed topic keeps its promise. Pure.

Sized on drawn minutes (``srtm.token_bucket.kept_minutes``): enough of them must keep the promise that the lower bound
of their Wilson interval is the confidence. Then ``minute_verdict`` judges what was found, on minutes of its own, and
more is taken until it predicts the promise. Topics with too many messages to draw are sized by formula.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from heapq import heapreplace

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.leases import MICRO, NOTHING, Amount
from distributor.placement import minute_verdict
from distributor.placement.minute_verdict import Candidate, is_predicted, minute_cost, most_minutes
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
from srtm.units import LARGEST, to_micro

CONFIDENCE = 0.95
MINUTES = 300  # as many as tell 0.95 from 0.977
FEWEST_MINUTES = 80  # fewer have a lower bound below 0.95 even if all keep the promise
_KEPT_MESSAGES = 16_000_000  # in minutes that stay in memory: 8 bytes each
_SEED = 1_000_000  # of the first minute; plans are judged on others
_STEPS = 12  # from what was sized to what is predicted, each twice as far as that before: 4,095 in all
NO_SERVICES: Mapping[str, int] = {}

Split = Callable[[TopicSpec, float], Mapping[str, Amount]]
"""{broker: its share} of a topic that is placed already, under its spec and a burst in messages."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PromiseSizing:
    """A placed topic. ``services``: ns a message, by broker; where unknown, the assumed. ``split``: None: as if nobody
    published elsewhere than placed."""

    spec: TopicSpec
    placement: Placement
    services: Mapping[str, int] = field(default_factory=dict)
    split: Split | None = None

    @property
    def promise(self) -> Promise:
        return promise_of(self.spec)

    def smallest_burst(
        self, rate: float, confidence: float = CONFIDENCE, minutes: int = MINUTES, above: float = 0
    ) -> int | None:
        """Return the smallest b above ``above`` with the rate r, messages. None: processing breaks the promise.

        ``minutes``: of those that it is sized on, the most.
        """
        if not self.placement.brokers:
            return 1
        drawn = self._minutes_within(minute_verdict.MOST_MESSAGES, minutes, confidence)
        sized = self._sized_burst(rate, confidence, drawn) if drawn else self._burst_by_formula(rate, confidence)
        if sized is None:
            return None
        servers = self.layout(rate).servers

        @cache
        def needs(seed: int) -> Floats:
            return np.array(needed_bursts(self._drawn(seed), servers, self.promise))

        def predicted(burst: int) -> bool:
            mine = self._bursts(rate, burst)
            return self._is_predicted(lambda seed: bool((needs(seed) <= mine).all()), confidence)

        return self._smallest(predicted, max(sized, math.floor(above) + 1))

    def smallest_rate(
        self, burst_at: Callable[[float], float], confidence: float = CONFIDENCE, minutes: int = MINUTES
    ) -> float | None:
        """Return the smallest r above that of the topic, msg/s, to three digits. None: none was found.

        ``burst_at``: the burst that goes with a rate. ``minutes``: as in ``smallest_burst``.
        """
        largest = min(LARGEST, 100 * max(self.spec.rate, self.spec.publishers.load))
        least, most = _index_above(self.spec.rate), _index_above(largest)

        @cache
        def candidate(index: int) -> Candidate:
            rate = three_digits(index)
            return self.candidate(rate, burst_at(rate))

        def keeps(arrivals_s: list[Floats], index: int) -> bool:
            return candidate(index).keeps(arrivals_s, self.promise)

        def keeps_by_formula(index: int) -> bool:
            return self._chance(candidate(index)) >= confidence

        def has_tokens(index: int) -> bool:
            return burst_at(three_digits(index)) >= self.fewest

        least += bisect_left(range(least, most), True, key=has_tokens)
        if least == most:
            return None
        half = minute_verdict.MOST_MESSAGES // 2  # a search for a rate goes over some minutes ten times
        if drawn := self._minutes_within(half, minutes, confidence):
            least = self._sized_rate(keeps, least, most, drawn, confidence)
        else:
            least += bisect_left(range(least, most), True, key=keeps_by_formula)
        late: dict[int, list[Floats] | None] = {}  # None: kept at a smaller rate, so at larger ones too

        def keeps_minute(index: int, seed: int) -> bool:
            arrivals_s = late[seed] if seed in late else self._drawn(seed)
            late[seed] = None if arrivals_s is None or keeps(arrivals_s, index) else arrivals_s
            return late[seed] is None

        for index in itertools.takewhile(lambda index: index < most, (least + 2**step - 1 for step in range(_STEPS))):
            if self._is_predicted(partial(keeps_minute, index), confidence):
                return three_digits(index)
        return None

    def layout(self, rate: float) -> Layout:
        """Return the topic's layout with the token rate r, msg/s.

        The parts of the rate do not depend on the burst, as long as it has a token for everybody.
        """
        return self._layout(self.shares(rate, LARGEST))

    def candidate(self, rate: float, burst: float) -> Candidate:
        """Return what is to be judged under (r, b)."""
        return self.candidate_of(dict(zip(self.placement.brokers, self.shares(rate, burst), strict=True)))

    def candidate_of(self, shares: Mapping[str, Amount]) -> Candidate:
        """Return what is to be judged with these ``shares`` of the brokers."""
        mine = [shares[name] for name in self.placement.brokers]
        return Candidate(layout=self._layout(mine), bursts=tuple(share.burst / MICRO for share in mine))

    def service_s(self, broker: str) -> float:
        """Return what a message takes of ``broker``, s."""
        return self.services.get(broker, SERVICE_NS) / 1e9

    def shares(self, rate: float, burst: float) -> list[Amount]:
        """Return the share of each broker under (r, b)."""
        target = (self.split or self._alone)(replace(self.spec, rate=round(rate, 6)), round(burst, 6))
        return [target.get(name, NOTHING) for name in self.placement.brokers]

    def _alone(self, spec: TopicSpec, burst: float) -> Mapping[str, Amount]:
        envelope = Amount(to_micro(spec.rate, "rate"), to_micro(burst, "burst"))
        return target_shares(ShareDemand(spec=spec, envelope=envelope, placement=self.placement))

    @property
    def fewest(self) -> int:
        """The least burst that the topic may have: a token a broker, and its largest batch."""
        return max(1, len(self.placement.brokers), self.spec.publishers.largest_batch)

    @property
    def _most_burst(self) -> float:
        """All messages of a minute at once."""
        return min(LARGEST, self.spec.publishers.load * MINUTE_S + 2 * self.fewest)

    def _layout(self, shares: Sequence[Amount]) -> Layout:
        servers = [
            Server(rate=share.rate / MICRO, service_s=self.service_s(name))
            for name, share in zip(self.placement.brokers, shares, strict=True)
        ]
        return Layout(at=self.placement.at, servers=tuple(servers))

    def _bursts(self, rate: float, burst: float) -> Floats:
        return np.array([share.burst / MICRO for share in self.shares(rate, burst)])

    def _minutes_within(self, messages: int, most: int, confidence: float) -> int:
        """How many minutes with so many messages in all are drawn for sizing; 0: too few to tell."""
        minutes = int(min(most, messages / minute_cost(self.spec.publishers)))
        return minutes if minutes >= FEWEST_MINUTES and fewest_successes(minutes, confidence) is not None else 0

    def _drawn(self, seed: int) -> list[Floats]:
        """The arrivals of each broker in the minute of ``seed``, s. The first minutes that were asked for are kept."""
        if seed in self._kept_minutes:
            return self._kept_minutes[seed]
        found = split(minute(self.spec.publishers, seed), self.placement.at, len(self.placement.brokers))
        if (len(self._kept_minutes) + 1) * self.spec.publishers.load * MINUTE_S <= _KEPT_MESSAGES:
            self._kept_minutes[seed] = found
        return found

    @cached_property
    def _kept_minutes(self) -> dict[int, list[Floats]]:
        return {}

    def _is_predicted(self, keeps: Callable[[int], bool], confidence: float) -> bool:
        """As in ``minute_verdict``."""
        most = most_minutes(self.spec.publishers)
        if fewest_successes(most, confidence) is None:
            return True  # a plan is by formula too: what was sized by it will do
        return is_predicted(keeps, most, confidence)

    def _sized_burst(self, rate: float, confidence: float, minutes: int) -> int | None:
        servers, wanted = self.layout(rate).servers, fewest_successes(minutes, confidence) or minutes
        seeds = range(_SEED, _SEED + minutes)
        needs = np.array([needed_bursts(self._drawn(seed), servers, self.promise) for seed in seeds])
        if np.isfinite(needs).all(axis=1).sum() < wanted:
            return None
        return self._smallest(
            lambda burst: bool((needs <= self._bursts(rate, burst)).all(axis=1).sum() >= wanted), self.fewest
        )

    def _sized_rate(
        self, keeps: Callable[[list[Floats], int], bool], least: int, most: int, minutes: int, confidence: float
    ) -> int:
        """The least index of a rate with which enough minutes keep the promise; ``most``: none below it.

        Only minutes that are among the worst so far are searched for what they need.
        """
        may_be_late = minutes - (fewest_successes(minutes, confidence) or minutes)
        worst = [least] * (may_be_late + 1)
        for seed in range(_SEED, _SEED + minutes):
            arrivals_s, found = self._drawn(seed), worst[0]
            if found < most and not keeps(arrivals_s, found):
                heapreplace(worst, found + bisect_left(range(found, most), True, key=partial(keeps, arrivals_s)))
        return worst[0]

    def _burst_by_formula(self, rate: float, confidence: float) -> int | None:
        return self._smallest(lambda burst: self._chance(self.candidate(rate, burst)) >= confidence, self.fewest)

    def _chance(self, candidate: Candidate) -> float:
        traffic = list(self.placement.traffic.values())
        return chance_by_formula(traffic, candidate.layout.servers, candidate.bursts, self.promise)

    def _smallest(self, keeps: Callable[[int], bool], least: int) -> int | None:
        most = least
        while most > LARGEST or not keeps(most):
            least, most = most + 1, 2 * most
            if most > self._most_burst:
                return None
        return least + bisect_left(range(least, most), True, key=keeps)


def promise_of(spec: TopicSpec) -> Promise:
    return Promise(percentile=spec.slo.percentile, latency_s=spec.slo.latency_ms / 1e3)


def three_digits(index: int) -> float:
    """Return the rate of three digits at ``index`` among all, in order: 0 is 100, and each power of ten has 900."""
    return float(f"{100 + index % 900}e{index // 900}")


def _index_above(rate: float) -> int:
    power = math.floor(math.log10(rate)) - 2
    index = 900 * power + math.floor(round(rate / 10.0**power, 9)) - 100
    return index if three_digits(index) > rate else index + 1


def most_burst(spec: TopicSpec, rate: float | None = None) -> float:
    """Return the largest burst that "auto" may take, messages."""
    return float(max(1, math.floor(spec.max_burst_s * (spec.rate if rate is None else rate))))


def auto_burst(
    spec: TopicSpec,
    placement: Placement,
    brokers: int = 1,
    services: Mapping[str, int] = NO_SERVICES,
    roomy: Callable[[], Placement] | None = None,
) -> float:
    """Return what ``burst = "auto"`` comes to under ``placement``.

    At least a token for each of ``brokers``, as far as ``most_burst`` allows: publishers may come to any of them, and a
    share needs a token. ``services``: as in ``PromiseSizing``. ``roomy``: the placement with a token for each broker,
    if that may be another.

    Where processing breaks the promise, no burst helps: then the one that keeps the access delay is right. Raises
    BadInput if more than ``most_burst`` is needed.
    """
    sizing = PromiseSizing(spec=spec, placement=placement, services=services)
    needed = sizing.smallest_burst(spec.rate)
    if needed is None:
        sizing = PromiseSizing(spec=spec, placement=placement, services=dict.fromkeys(placement.brokers, 0))
        needed = sizing.smallest_burst(spec.rate)
    most = most_burst(spec)
    if needed is not None and needed <= max(most, sizing.fewest):
        return max(float(needed), min(float(brokers), most))
    sizing = sizing if roomy is None else replace(sizing, placement=roomy())
    rate = sizing.smallest_rate(lambda rate: most_burst(spec, rate))
    wanted = "more than any" if needed is None else f"{needed:,}"
    rule = f"needs {wanted} messages, but max_burst_s = {figure(spec.max_burst_s, 6)} allows {figure(most, 6)}"
    raise BadInput("burst", "auto", rule if rate is None else f"{rule}; with rate = {rate:.6g} it does")
