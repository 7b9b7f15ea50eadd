"""Generalized distributed rate limiting: brokers even out a performance indicator among themselves, two at a time.

From "Designing and Implementing a Fault Tolerant Distributed Rate Limiting Algorithm" (Ramsden), with another exchange:
its formula (2) as printed has the sign of a ratio that is good when small, so it diverges for S / D. Every exchange is
exact in micro-units: what one gives the other gets. No clock, no numpy; brokers use this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from srtm.topics.adaptation import Indicator
from srtm.units import MICRO

LEAST_DEMAND = 0.02  # of the mean supply: below it a broker without demand would insulate its neighbours


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What one broker has of a topic, and wants."""

    rate: int  # S, micro-messages/s
    burst: int  # micro-messages; 0 with a rate of 0, else one token at least
    demand: float  # D, msg/s
    dispersion: float = 1.0  # I
    batch: int = 1  # the largest that one of its publishers sends at once, messages
    capacity: float = math.inf  # msg/s that it can process


@dataclass(frozen=True)
class Transfer:
    """From one broker to another, micro; negative: the other way. Rate and burst may go opposite ways."""

    rate: int
    burst: int


def indicator(kind: Indicator, supply: Supply) -> float:
    """What is to be equal everywhere: the fill ratio S / D (the paper's), or the slack (S - D) / sqrt(I D), under which
    a small broker keeps what it needs beside its proportion (``srtm.token_bucket.fitted_split``)."""
    rate = supply.rate / MICRO
    if kind == "fill":
        return rate / supply.demand
    return (rate - supply.demand) / math.sqrt(supply.dispersion * supply.demand)


def floored(supply: Supply, mean_rate: int) -> Supply:
    """``supply`` with a demand that is never nothing. ``mean_rate``: of the topic's rate per broker, micro."""
    return replace(supply, demand=max(supply.demand, LEAST_DEMAND * mean_rate / MICRO))


def least_rate(mean_rate: int) -> int:
    """What an exchange leaves a broker that has as much, micro-messages/s: with next to nothing the first message that
    comes would wait for hours. ``mean_rate``: of the topic's rate per broker, micro."""
    return max(1, round(LEAST_DEMAND * mean_rate))


def exchange(kind: Indicator, mine: Supply, other: Supply) -> Transfer:
    """What I give the other so that both have the same indicator: for the fill ratio exactly
    (S_i D_j - S_j D_i) / (D_i + D_j). Demands must be above 0.

    Neither gets more than it can process, unless it has that already; each share stays (0, 0) or keeps a token. Where
    the two have no token for each, nothing moves.
    """
    if mine.burst + other.burst < 2 * MICRO:
        return Transfer(0, 0)
    both = mine.rate + other.rate
    weights = _weights(kind, mine, other)
    rate = _bounded(_wanted_rate(kind, mine, other, weights), *_room(mine, other, both))
    bursts = mine.burst + other.burst
    least, most = mine.batch * MICRO, bursts - other.batch * MICRO
    if least > most:
        least, most = MICRO, bursts - MICRO
    burst = _bounded(round(bursts * weights[0] / (weights[0] + weights[1])), least, most)
    return Transfer(mine.rate - rate, mine.burst - burst)


def spread(kind: Indicator, supplies: Sequence[Supply]) -> float:
    """Largest less smallest indicator, as a part of the mean of the fill ratio; of the slack, of its largest size."""
    values = [indicator(kind, one) for one in supplies]
    size = sum(values) / len(values) if kind == "fill" else max(abs(value) for value in values)
    return (max(values) - min(values)) / size if size else 0.0


def _weights(kind: Indicator, mine: Supply, other: Supply) -> tuple[float, float]:
    if kind == "fill":
        return mine.demand, other.demand
    return math.sqrt(mine.dispersion * mine.demand), math.sqrt(other.dispersion * other.demand)


def _wanted_rate(kind: Indicator, mine: Supply, other: Supply, weights: tuple[float, float]) -> int:
    """Mine afterwards, micro. Where both together lack supply, the slack is nothing to share: by demand then."""
    both = mine.rate + other.rate
    slack = both / MICRO - mine.demand - other.demand
    if kind == "fill" or slack <= 0:
        return round(both * mine.demand / (mine.demand + other.demand))
    return round((mine.demand + slack * weights[0] / (weights[0] + weights[1])) * MICRO)


def _room(mine: Supply, other: Supply, both: int) -> tuple[int, int]:
    """Least and most that I may have afterwards."""
    least = max(1, both - _most(other, both - 1))
    most = min(both - 1, _most(mine, both - 1))
    return (least, most) if least <= most else (mine.rate, mine.rate)


def _most(supply: Supply, limit: int) -> int:
    if not math.isfinite(supply.capacity):
        return limit
    return min(limit, max(supply.rate, int(supply.capacity * MICRO)))


def _bounded(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))
