"""``--against CHECKOUT``: our build beside another built checkout of this project, in alternation.

The load, its generator and the options of both brokers are this checkout's. What decides is the ratio new / old within
each round: its median is at most 1.05, or 1 lies within its interval. Of a figure that should be high it is old / new.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.comparisons.rows.turns import FAULTS
from bench.harness.machine.checkout import THIS, Build
from bench.harness.results.comparison import (
    Begin,
    Better,
    Figure,
    Mark,
    NoneOf,
    Round,
    Row,
    Sample,
    Target,
    Turn,
    ratios,
)
from bench.harness.results.intervals import Interval, interval
from bench.harness.results.verdict import Check
from srtm.errors import BadInput

NEW, OLD = "new", "old"
MOST = 1.05


@dataclass(frozen=True)
class NotSlower:
    """The new build is not worse than the old one by this figure; one without a direction is reported only."""

    figure: Figure
    new: str = NEW
    old: str = OLD

    @property
    def key(self) -> str:
        return self.figure.key

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        higher = self.figure.better is Better.HIGHER
        found = interval(ratios(rounds, self.key, *((self.old, self.new) if higher else (self.new, self.old))))
        what = f"{self.figure.label}, " + ("old / new" if higher else "new / old")
        measured = found.text(".3g", "x")
        if self.figure.better is None:
            return Check(what, measured, "anything (not judged)", True)
        return Check(what, measured, f"at most {MOST}x, or 1x within the interval", not_worse(found))

    def mark(self, rounds: Sequence[Round]) -> Mark | None:
        """Nowhere: a ratio is not drawn."""


def not_worse(found: Interval) -> bool:
    """``found``: of the ratios of a cost, new / old."""
    return found.median <= MOST or found.low <= 1.0


def refuse_document(document: Path | None) -> None:
    """Raises BadInput: the documents show what this build does beside other systems."""
    if document is not None:
        raise BadInput("document", str(document), "must not be given with --against")


def row_against(row: Row, old: Build) -> Row:
    """Of a row's systems the first, which is ours, from this checkout and from ``old``."""
    ours = row.systems[0]
    faults = [replace(target, ours=(NEW,)) for target in row.targets if isinstance(target, NoneOf)]
    compared: list[Target] = [NotSlower(figure) for figure in row.figures if figure.key not in FAULTS]
    return replace(row, systems=(NEW, OLD), targets=(*faults, *compared), begin=_alternating(row.begin, ours, old))


def _alternating(begin: Begin, ours: str, old: Build) -> Begin:
    def begin_both(systems: Sequence[str]) -> Callable[[Turn], Awaitable[Round]]:
        builds, measures = {NEW: THIS, OLD: old}, {name: begin((ours,)) for name in systems}

        async def measure(turn: Turn) -> Round:
            samples: dict[str, Sample] = {}
            for name in in_order(turn):
                (one,) = await measures[name](replace(turn, folder=turn.folder / name, build=builds[name]))
                samples[name] = replace(one, system=name)
            return [samples[name] for name in systems]

        return measure

    return begin_both


def in_order(turn: Turn) -> tuple[str, str]:
    """Who goes first changes from round to round, as the seed does."""
    return (NEW, OLD) if turn.seed % 2 else (OLD, NEW)
