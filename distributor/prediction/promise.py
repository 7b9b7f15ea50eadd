"""In how many of 100 minutes a placement keeps the promise, and which rate or burst would do. Pure.

Minutes are drawn from seeds of their own until the Wilson interval of the kept ones lies on one side of the
confidence. The delay is access plus processing, and the worst broker decides. Where a minute has too many messages,
the answer is by formula, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.columns import NOWHERE
from distributor.model.leases import MICRO, Amount
from distributor.placement.promise_sizing import PromiseSizing, most_burst
from srtm.errors import BadInput
from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.kept_minutes import (
    MINUTE_S,
    Layout,
    Server,
    chance_by_formula,
    minute,
    needed_bursts,
    split,
)
from srtm.token_bucket.wilson import fewest_successes, wilson_interval
from srtm.topics.spec import TopicSpec

CONFIDENCE = 95.0  # per cent of the minutes
LEAST_CONFIDENCE, MOST_CONFIDENCE = 50.0, 99.0
_BLOCK = 20  # minutes between two looks at the interval
_COMPARED = 100  # minutes on which other layouts are judged too
_MOST_MINUTES = 1_000
_SIZING_MINUTES = 150  # for the burst that would do: half of those of "auto", so that an answer takes five seconds
_MOST_MESSAGES = 100_000_000  # in all minutes: about ten seconds of work

Json = dict[str, Any]
Method = Literal["drawn", "formula"]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """How many minutes kept the promise; by formula ``chance`` alone is known. Probabilities from 0 to 1."""

    method: Method
    minutes: int
    kept: int
    chance: float
    low: float
    high: float

    @classmethod
    def counted(cls, kept: int, minutes: int) -> Kept:
        low, high = wilson_interval(kept, minutes)
        return cls(method="drawn", minutes=minutes, kept=kept, chance=kept / max(1, minutes), low=low, high=high)

    @classmethod
    def computed(cls, chance: float) -> Kept:
        return cls(method="formula", minutes=0, kept=0, chance=chance, low=chance, high=chance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A layout and the burst of each of its brokers, messages."""

    layout: Layout
    bursts: tuple[float, ...]

    @classmethod
    def of(cls, sizing: PromiseSizing, shares: Mapping[str, Amount]) -> Candidate:
        brokers = sizing.placement.brokers
        services = [sizing.service_s(name) for name in brokers]
        servers = [
            Server(rate=shares[name].rate / MICRO, service_s=service)
            for name, service in zip(brokers, services, strict=True)
        ]
        layout = Layout(at=sizing.placement.at, servers=tuple(servers))
        return cls(layout=layout, bursts=tuple(shares[name].burst / MICRO for name in brokers))

    @classmethod
    def one_bucket(cls, placement: Placement, envelope: Amount) -> Candidate:
        """All that have a place, in one bucket; processing takes no time."""
        at = np.where(placement.at == NOWHERE, NOWHERE, 0)
        layout = Layout(at=at, servers=(Server(rate=envelope.rate / MICRO, service_s=0.0),))
        return cls(layout=layout, bursts=(envelope.burst / MICRO,))


def checked_confidence(confidence: float) -> float:
    """Raises BadInput."""
    if not LEAST_CONFIDENCE <= confidence <= MOST_CONFIDENCE:
        rule = f"must be from {LEAST_CONFIDENCE:g} to {MOST_CONFIDENCE:g} per cent of the minutes"
        raise BadInput("confidence", confidence, rule)
    return confidence


def promise_json(
    sizing: PromiseSizing, burst: float, shares: Mapping[str, Amount], even: Candidate | None, confidence: float
) -> Json:
    """Return the verdict on a topic with the burst ``burst`` and these shares. ``even``: spread over all brokers."""
    spec, placement, sure = sizing.spec, sizing.placement, confidence / 100
    envelope = Amount(round(spec.rate * MICRO), round(burst * MICRO))
    if not placement.brokers:
        empty = placement.state == "placed"  # nobody publishes: nothing is late
        return {"confidence": confidence, "predicted": empty, "kept": None, "one_bucket": None, "even": None}
    others = [Candidate.one_bucket(placement, envelope), *([even] if even is not None else [])]
    mine = Candidate.of(sizing, shares)
    kept, *compared = judged(spec, [mine, *others], sizing, sure)
    found: Json = {
        "confidence": confidence,
        "predicted": kept.low >= sure and placement.state == "placed",
        "kept": asdict(kept),
        "one_bucket": asdict(compared[0]),
        "even": asdict(compared[1]) if even is not None else None,
    }
    return found if kept.low >= sure else {**found, "enough": _enough(sizing, burst, sure)}


def judged(spec: TopicSpec, candidates: Sequence[Candidate], sizing: PromiseSizing, sure: float) -> list[Kept]:
    """Judge the first of ``candidates`` until it is clear, and the others on its first minutes."""
    most = int(min(_MOST_MINUTES, _MOST_MESSAGES / max(1.0, spec.publishers.load * MINUTE_S)))
    if fewest_successes(most, sure) is None:
        return [Kept.computed(_by_formula(spec, one, sizing)) for one in candidates]
    counts, minutes = [0] * len(candidates), [0] * len(candidates)
    for seed in range(most):
        drawn = minute(spec.publishers, seed)
        for index, one in enumerate(candidates if seed < _COMPARED else candidates[:1]):
            arrivals_s = split(drawn, one.layout.at, len(one.layout.servers))
            needs = needed_bursts(arrivals_s, one.layout.servers, sizing.promise)
            counts[index] += all(need <= burst for need, burst in zip(needs, one.bursts, strict=True))
            minutes[index] += 1
        low, high = wilson_interval(counts[0], minutes[0])
        if minutes[0] % _BLOCK == 0 and (low >= sure or high < sure):
            break
    return [Kept.counted(count, drawn_minutes) for count, drawn_minutes in zip(counts, minutes, strict=True)]


def _by_formula(spec: TopicSpec, one: Candidate, sizing: PromiseSizing) -> float:
    traffic = traffic_of(spec.publishers, one.layout.at, len(one.layout.servers))
    return chance_by_formula(traffic, one.layout.servers, one.bursts, sizing.promise)


def _enough(sizing: PromiseSizing, burst: float, sure: float) -> Json:
    """The smallest rate and the smallest burst that would do; None: none does."""
    spec = sizing.spec
    needed = sizing.smallest_burst(spec.rate, sure, _SIZING_MINUTES)
    if needed is None:
        alone = max(sizing.service_s(name) for name in sizing.placement.brokers) > sizing.promise.latency_s
        return {"rate": None, "burst": None, "limit": "service" if alone else "processing"}
    rate = sizing.smallest_rate(lambda rate: most_burst(spec, rate) if spec.burst == "auto" else burst, sure)
    return {"rate": rate, "burst": max(float(needed), math.ceil(burst)), "limit": None}
