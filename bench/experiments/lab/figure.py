"""What an experiment gives: rows for JSON and CSV, panels for a picture, and a verdict on what the paper claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.harness.results.panels import Panel
from bench.harness.results.sources import SIMULATED
from bench.harness.results.verdict import Check

Row = dict[str, Any]  # flat: text, numbers, None
T = TypeVar("T")


def parts_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["part"] for row in rows))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """``conditions``: what holds for all rows (bucket, machine, seconds), as the caption says it."""

    rows: Sequence[Row]
    panels: Sequence[Panel]
    checks: Sequence[Check]
    conditions: str


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much of an experiment is run. ``seconds``: of traffic in one simulated run; ``parts``: those of a figure that
    are wanted, all where none is named."""

    seconds: float = 60.0
    repetitions: int = 10
    seed: int = 1
    parts: tuple[str, ...] = ()
    step: Callable[[str], None] = field(default=lambda _: None)  # told before each run

    def of(self, parts: Mapping[str, T]) -> dict[str, T]:
        """Those that are wanted."""
        return {part: value for part, value in parts.items() if not self.parts or part in self.parts}

    def less_than(self, other: Effort) -> bool:
        """In the length of runs, or in their number."""
        return self.seconds < other.seconds or self.repetitions < other.repetitions

    def seeds(self) -> Iterator[int]:
        """One a repetition."""
        return (self.seed * 1_000 + number for number in range(self.repetitions))


@dataclass(frozen=True, kw_only=True)
class About:
    """``claim``: what the paper says; ``columns``: of the table on the page, {header: key of a row}; ``how`` it was
    made and in which ``runs``; with less than the ``full`` effort it is coarse. What the figure does not depend on is 0
    seconds or 1 repetition there. ``sources``: paths, what it is made of."""

    name: str
    title: str
    claim: str
    columns: dict[str, str]
    how: str = "Simulated"
    runs: str = "{repetitions} runs of {seconds:g} s a point"
    full: Effort = Effort()
    sources: tuple[str, ...] = SIMULATED


@dataclass(frozen=True, kw_only=True)
class Experiment(About):
    """``parts``: {name that selects a part alone: part}."""

    run: Callable[[Effort], Figure]
    parts: Mapping[str, str] = field(default_factory=dict)
