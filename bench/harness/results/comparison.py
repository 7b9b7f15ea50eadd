"""Systems under the same load in turns, and what decides between them. Pure: samples in, figures and checks out.

A *round* is one sample of every system, one after the other, so that a busy neighbour meets all of them. A round in
which a sample does not count (the generator was late, a system failed) is recorded and measured again. What is compared
with another system is compared within each round: the median of the rounds' ratios, with its interval.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from bench.harness.machine.checkout import THIS, Build
from bench.harness.results.intervals import Interval, interval
from bench.harness.results.verdict import Check, Verdict
from bench.harness.systems.systems import OURS


@dataclass(frozen=True)
class Sample:
    """What one system did once."""

    system: str
    values: Mapping[str, float]  # by key of a Figure; empty where the system failed
    reasons: Sequence[str] = ()  # why it does not count


Round = Sequence[Sample]


@dataclass(frozen=True)
class Turn:
    """Where, how long and with which traffic a round is measured."""

    folder: Path  # empty, of this round alone
    seconds: float
    seed: int
    build: Build = THIS  # of the systems that are ours


Begin = Callable[[Sequence[str]], Callable[[Turn], Awaitable[Round]]]


class Better(Enum):
    """Which way a figure improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Figure:
    """One number of a sample. ``drawn``: it has a place in the picture. ``better``: two builds are judged by it."""

    key: str
    label: str  # with its unit
    digits: int
    drawn: bool = False
    better: Better | None = None


class Mark(msgspec.Struct, frozen=True):
    """What ``system`` must reach, in the unit of the figure."""

    system: str
    value: float


class Target(Protocol):
    """What must be reached. ``rounds``: those that count, at least one; ``samples``: all."""

    @property
    def key(self) -> str:
        """Of the figure that it is about."""
        ...

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check: ...

    def mark(self, rounds: Sequence[Round]) -> Mark | None:
        """Where that lies in a picture of the figure; None: nowhere."""


@dataclass(frozen=True)
class Row:
    """One line of the table. ``begin`` gives what measures a round of the systems named; it may remember from round to
    round."""

    name: str
    claim: str
    systems: tuple[str, ...]  # in the order of their turns
    figures: tuple[Figure, ...]
    targets: tuple[Target, ...]
    begin: Begin
    note: str = ""  # what to know of how it is measured

    def figure(self, key: str) -> Figure:
        return next(figure for figure in self.figures if figure.key == key)


def values(rounds: Sequence[Round], system: str, key: str) -> list[float]:
    return [sample.values[key] for one in rounds for sample in one if sample.system == system]


def ratios(rounds: Sequence[Round], key: str, ours: str, theirs: str) -> list[float]:
    """Round by round; a figure of theirs that is 0 makes it infinite."""
    pairs = zip(values(rounds, ours, key), values(rounds, theirs, key), strict=True)
    return [mine / other if other else float("inf") for mine, other in pairs]


@dataclass(frozen=True)
class Ratio:
    """``ours`` is at most or at least ``factor`` times ``theirs``: the median of the rounds' ratios decides."""

    key: str
    label: str
    theirs: str
    at_most: float | None = None
    at_least: float | None = None
    ours: str = OURS

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        found = interval(ratios(rounds, self.key, self.ours, self.theirs))
        measured = found.text(".3g", "x")
        what = f"{self.label}, {self.ours} / {self.theirs}"
        if self.at_most is not None:
            return Check(what, measured, f"at most {self.at_most:g}x", found.median <= self.at_most)
        return Check(what, measured, f"at least {self.at_least:g}x", found.median >= (self.at_least or 0.0))

    def mark(self, rounds: Sequence[Round]) -> Mark:
        factor = self.at_least if self.at_most is None else self.at_most
        return Mark(self.ours, (factor or 0.0) * interval(values(rounds, self.theirs, self.key)).median)


@dataclass(frozen=True)
class AnyOf:
    """One of them is enough."""

    label: str
    targets: tuple[Ratio, ...]

    @property
    def key(self) -> str:
        return self.targets[0].key

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:
        checks = [(target.check(rounds, samples), target.theirs) for target in self.targets]
        measured = "; ".join(f"{check.measured} of {theirs}" for check, theirs in checks)
        bound = ", or ".join(f"{check.bound} of {theirs}" for check, theirs in checks)
        return Check(self.label, measured, bound, any(check.kept for check, _ in checks))

    def mark(self, rounds: Sequence[Round]) -> Mark:
        return min((target.mark(rounds) for target in self.targets), key=lambda mark: mark.value)


@dataclass(frozen=True)
class Bound:
    """The median of ours is at most ``at_most``."""

    key: str
    label: str
    at_most: float
    unit: str
    ours: str = OURS

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        found = interval(values(rounds, self.ours, self.key))
        measured = found.text(".3g", f" {self.unit}")
        return Check(self.label, measured, f"at most {self.at_most:g} {self.unit}", found.median <= self.at_most)

    def mark(self, rounds: Sequence[Round]) -> Mark:  # noqa: ARG002
        return Mark(self.ours, self.at_most)


@dataclass(frozen=True)
class NoWorse:
    """Unchanged within noise: the interval of the rounds' ratios has 1 in it or lies below, and its upper end is at
    most ``margin``. An interval that reaches further shows nothing, and so fails."""

    key: str
    label: str
    theirs: str
    ours: str
    margin: float = 1.25

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        found = interval(ratios(rounds, self.key, self.ours, self.theirs))
        bound = f"1x within the interval, its upper end at most {self.margin:g}x"
        kept = found.low <= 1.0 and found.high <= self.margin
        return Check(f"{self.label}, {self.ours} / {self.theirs}", found.text(".3g", "x"), bound, kept)

    def mark(self, rounds: Sequence[Round]) -> None:
        """Noise has no one place."""


@dataclass(frozen=True)
class NoneOf:
    """Nothing of the kind with ours, in any sample, and none that failed: a late generator excuses no loss, and what
    ended in an error may have lost anything."""

    key: str
    label: str
    ours: Sequence[str] = (OURS,)

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        ours = [sample for sample in samples if sample.system in self.ours]
        count = sum(sample.values.get(self.key, 0) for sample in ours)
        failed = sum(not sample.values for sample in ours)
        measured = f"{count:g}" + (f", and {failed} runs failed" if failed else "")
        return Check(self.label, measured, "0", count == 0 and not failed)

    def mark(self, rounds: Sequence[Round]) -> None:
        """A count of faults is not drawn."""


def counts(one: Round) -> bool:
    return not any(sample.reasons for sample in one)


def judge(row: Row, rounds: Sequence[Round], settings: dict[str, object]) -> Verdict:
    """``settings["pairs"]``: how many rounds were wanted."""
    valid, wanted = [one for one in rounds if counts(one)], settings["pairs"]
    samples = [sample for one in rounds for sample in one]
    few = f"only {len(valid)} of {wanted} rounds were valid"
    reasons = [] if len(valid) == wanted else [few, *why_excluded(rounds)[:3]]
    checks = [target.check(valid, samples) for target in row.targets] if valid else []
    return Verdict(row.name, row.claim, checks, _flat(row, rounds), settings, reasons)


def why_excluded(rounds: Sequence[Round]) -> list[str]:
    """Each reason once."""
    samples = [sample for one in rounds for sample in one]
    return list(dict.fromkeys(f"{sample.system}: {reason}" for sample in samples for reason in sample.reasons))


def _flat(row: Row, rounds: Sequence[Round]) -> list[dict[str, object]]:
    return [
        {
            "name": f"{row.name}-{sample.system}-{number}",
            "row": row.name,
            "system": sample.system,
            "round": number,
            **sample.values,
            "valid": not sample.reasons,
            "reasons": "; ".join(sample.reasons),
        }
        for number, one in enumerate(rounds)
        for sample in one
    ]


class MeasuredFigure(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    digits: int
    drawn: bool
    systems: dict[str, Interval]
    marks: list[Mark] = []

    def cell(self, system: str) -> str:
        found = self.systems.get(system)
        return "" if found is None else found.text(f",.{self.digits}f")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A row's outcome as it is kept beside the documents: tables and pictures are made from it alone."""

    name: str
    claim: str
    note: str
    systems: list[str]
    figures: list[MeasuredFigure]
    checks: list[Check]
    line: str
    reached: bool
    rounds: int
    excluded: list[str] = []  # why rounds were measured again, each reason once
    seconds: float
    coverage: float
    provenance: str


def figures(row: Row, rounds: Sequence[Round]) -> list[MeasuredFigure]:
    """Of the rounds that count; none without one."""
    valid = [one for one in rounds if counts(one)]
    if not valid:
        return []
    return [
        MeasuredFigure(
            label=figure.label,
            digits=figure.digits,
            drawn=figure.drawn,
            systems={system: interval(values(valid, system, figure.key)) for system in row.systems},
            marks=[mark for target in row.targets if target.key == figure.key and (mark := target.mark(valid))],
        )
        for figure in row.figures
    ]


@dataclass
class Rounds:
    """Collects rounds until enough of them count, at most twice as many as wanted."""

    wanted: int
    done: list[Round] = field(default_factory=list)

    def more(self) -> bool:
        return len(self.done) < 2 * self.wanted and sum(map(counts, self.done)) < self.wanted
