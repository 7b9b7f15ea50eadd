"""A row measured round by round, each in a folder of its own, judged and shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.harness.machine.checkout import Build
from bench.harness.results.comparison import Measured, Round, Rounds, Row, Turn, counts, figures, judge, why_excluded
from bench.harness.results.intervals import coverage
from bench.harness.results.provenance import provenance
from bench.harness.results.sources import commit
from bench.harness.results.verdict import Verdict
from srtm.console.output import table


@dataclass(frozen=True)
class RowOptions:
    """Which rows, how, and where they go."""

    names: Sequence[str] = ()  # none: all of them
    pairs: int = 10  # rounds that count, of each row
    seconds: float = 10.0
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # of pages, to write there as well
    against: Build | None = None  # instead of other systems

    @property
    def settings(self) -> dict[str, object]:
        against = {} if self.against is None else {"against": commit(self.against.root)}
        return {"pairs": self.pairs, "seconds": self.seconds, **against}


async def measure(
    row: Row, options: RowOptions, console: Console, tell: Callable[[Round], object] = lambda _round: None
) -> tuple[Verdict, Measured]:
    """Until enough rounds count, or too many do not; ``tell`` hears of each."""
    started, rounds, measure_round = time.time(), Rounds(options.pairs), row.begin(row.systems)
    while rounds.more():
        number = len(rounds.done)
        with (
            TemporaryDirectory(prefix="srtm-bench-") as folder,
            console.status(f"{row.name}, round {number + 1} of {options.pairs}"),
        ):
            rounds.done.append(await measure_round(Turn(Path(folder), options.seconds, options.seed + number)))
        tell(rounds.done[-1])
    verdict = judge(row, rounds.done, {**options.settings, "seed": options.seed})
    return verdict, measured(row, rounds.done, verdict, started)


def measured(row: Row, rounds: Sequence[Round], verdict: Verdict, started: float) -> Measured:
    valid = sum(map(counts, rounds))
    return Measured(
        name=row.name,
        claim=row.claim,
        note=row.note,
        systems=list(row.systems),
        figures=figures(row, rounds),
        checks=verdict.checks,
        line=verdict.line,
        reached=verdict.reached,
        rounds=valid,
        excluded=why_excluded(rounds),
        seconds=float(str(verdict.settings["seconds"])),
        coverage=coverage(valid) if valid else 0.0,
        provenance=provenance(started),
    )


def show(console: Console, outcome: Measured) -> None:
    rows = [[figure.label, *(figure.cell(system) for system in outcome.systems)] for figure in outcome.figures]
    if rows:
        told = f"Medians of {outcome.rounds} rounds ({100 * outcome.coverage:.0f} % intervals)"
        console.print(table(told, ["", *outcome.systems], rows))
    for check in outcome.checks:
        colour = "green" if check.kept else "red"
        console.print(f"[{colour}]{check.what}: {check.measured}, must be {check.bound}[/]")
    console.print(f"[bold {'green' if outcome.reached else 'red'}]{outcome.line}[/]")
