"""In how many minutes a layout with its bursts keeps the promise. Pure.

Minutes are drawn from seeds of their own until the Wilson interval of the kept ones lies on one side of the
confidence. Where a minute has too many messages, the answer is by formula, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.kept_minutes import (
    MINUTE_S,
    Layout,
    Promise,
    chance_by_formula,
    minute,
    needed_burst,
    split,
)
from srtm.token_bucket.wilson import fewest_successes, wilson_interval
from srtm.topics.publishers import Floats, Publishers

BLOCK = 20  # minutes between two looks at the interval
COMPARED = 100  # minutes on which other layouts are judged too
MOST_MINUTES = 1_000
MOST_MESSAGES = 48_000_000  # in all minutes: less than five seconds of work

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

    def is_clear(self, sure: float) -> bool:
        """Whether more minutes would tell nothing new."""
        return self.minutes % BLOCK == 0 and (self.low >= sure or self.high < sure)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A layout and the burst of each of its brokers, messages."""

    layout: Layout
    bursts: tuple[float, ...]

    def keeps(self, arrivals_s: Sequence[Floats], promise: Promise) -> bool:
        """Whether every broker keeps the promise. ``arrivals_s``: of each broker, in a minute."""
        at_brokers = zip(arrivals_s, self.layout.servers, self.bursts, strict=True)
        return all(needed_burst(arrival_s, server, promise) <= burst for arrival_s, server, burst in at_brokers)


def minute_cost(publishers: Publishers) -> float:
    """Return what it costs to draw a minute, in messages: each publisher costs as two more."""
    return max(1.0, publishers.load * MINUTE_S + 2 * len(publishers))


def most_minutes(publishers: Publishers) -> int:
    """Return how many minutes are drawn at most: whole blocks."""
    minutes = min(MOST_MINUTES, MOST_MESSAGES / minute_cost(publishers))
    return int(minutes) // BLOCK * BLOCK


def judged(publishers: Publishers, candidates: Sequence[Candidate], promise: Promise, sure: float) -> list[Kept]:
    """Judge the first of ``candidates`` until it is clear, and the others on its first minutes."""
    most = most_minutes(publishers)
    if fewest_successes(most, sure) is None:
        return [Kept.computed(_by_formula(publishers, candidate, promise)) for candidate in candidates]
    counts, minutes = [0] * len(candidates), [0] * len(candidates)
    for seed in range(most):
        drawn = minute(publishers, seed)
        for index, candidate in enumerate(candidates if seed < COMPARED else candidates[:1]):
            counts[index] += candidate.keeps(split(drawn, candidate.layout.at, len(candidate.layout.servers)), promise)
            minutes[index] += 1
        if Kept.counted(counts[0], minutes[0]).is_clear(sure):
            break
    return [Kept.counted(count, drawn_minutes) for count, drawn_minutes in zip(counts, minutes, strict=True)]


def is_predicted(keeps: Callable[[int], bool], most: int, sure: float) -> bool:
    """Whether ``judged`` predicts the promise within ``most`` minutes. ``keeps``: the minute of this seed."""
    count = 0
    for minutes in range(1, most + 1):
        count += keeps(minutes - 1)
        if minutes % BLOCK == 0 and (kept := Kept.counted(count, minutes)).is_clear(sure):
            return kept.low >= sure
    return False


def _by_formula(publishers: Publishers, candidate: Candidate, promise: Promise) -> float:
    traffic = traffic_of(publishers, candidate.layout.at, len(candidate.layout.servers))
    return chance_by_formula(traffic, candidate.layout.servers, candidate.bursts, promise)
