"""What ``srtm bench peers`` found: points of (system, load), each the medians of its runs. Pure.

A run that says nothing about its system (the generator was late, the plan was not sent) is left out of the medians, of
its own system alone: at a load that one system does not carry, the others are measured all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.harness.results.comparison import Figure, Sample
from bench.harness.results.intervals import Interval, coverage, interval

FIGURES = (
    Figure("p50_ms", "p50, ms", 3),
    Figure("p99_ms", "p99, ms", 3),
    Figure("p999_ms", "p99.9, ms", 3),
    Figure("cpu_us", "CPU a message, us", 1),
    Figure("resident_mib", "memory, MiB", 1),
    Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One system at one load. ``figures``: {key of FIGURES: median and interval}, empty where no run counts."""

    system: str
    rate: int  # msg/s
    runs: int  # that count
    coverage: float  # of the intervals
    figures: dict[str, Interval]
    lost: int  # messages, in all runs
    refused: list[str] = []  # why runs do not count, each reason once


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A system, as the table says it."""

    name: str
    version: str
    speaks: str
    promises: str
    settings: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What page and picture are made from."""

    systems: list[About]  # those that were measured
    absent: list[str]  # what to say of the others that were asked for
    points: list[Point]
    runs: int  # wanted of each point
    seconds: float

    def of(self, system: str) -> list[Point]:
        """By load, ascending."""
        return sorted((point for point in self.points if point.system == system), key=lambda point: point.rate)

    def whole(self, ours: str) -> bool:
        """Whether every point of ``ours`` has a run that counts, and nothing was lost there."""
        return all(point.runs > 0 and point.lost == 0 for point in self.of(ours))


def point(system: str, rate: int, samples: Sequence[Sample]) -> Point:
    """Of all runs of ``system`` at ``rate``, at least one."""
    counted = [sample.values for sample in samples if not sample.reasons]
    return Point(
        system=system,
        rate=rate,
        runs=len(counted),
        coverage=coverage(len(counted)) if counted else 0.0,
        figures={figure.key: interval([values[figure.key] for values in counted]) for figure in FIGURES}
        if counted
        else {},
        lost=int(sum(sample.values.get("lost", 0) for sample in samples)),
        refused=list(dict.fromkeys(reason for sample in samples for reason in sample.reasons)),
    )


def order(systems: Sequence[str], turn: int) -> list[str]:
    """Who is measured when in a round: everybody is first in turn."""
    first = turn % len(systems)
    return [*systems[first:], *systems[:first]]
