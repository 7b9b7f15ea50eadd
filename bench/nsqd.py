"""``srtm bench nsqd``: our broker in nsqd's place beside the real nsqd 1.3.0, and beside the floor, row by row.

The same load in turns on the same machine (ours, nsqd, floor, ours, ...), each run with a fresh process and an empty
data folder. Asked to, it keeps each row's outcome in docs/measured/ and writes the table of docs/performance.md and its
picture anew from all that are kept there: rows may be measured one by one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from bench.choosing import chosen
from bench.comparison import (
    Measured,
    Round,
    Rounds,
    Row,
    Sample,
    Turn,
    counts,
    figures,
    judge,
    why_excluded,
)
from bench.document import refuse_without_block, write_block
from bench.intervals import coverage
from bench.nsqd_document import keep, kept, markdown, picture
from bench.provenance import provenance
from bench.results import Results, write_results
from bench.rows import bucket_cost, crowd, fan_out, http_publish, load, memory, neighbour, saturated, steady
from bench.systems import floor_program, peer
from bench.verdict import Verdict

BLOCK = "nsqd"
ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        load.ROW,
        steady.ROW,
        saturated.ROW,
        saturated.APART,
        saturated.OVERFLOW,
        memory.ROW,
        crowd.ROW,
        fan_out.ROW,
        http_publish.ROW,
        bucket_cost.ROW,
        neighbour.ROW,
    )
}


@dataclass(frozen=True)
class NsqdOptions:
    names: Sequence[str] = ()  # keys of ROWS; none: all of them
    pairs: int = 10  # rounds that count, of each row
    seconds: float = 10.0
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


async def compare(options: NsqdOptions, console: Console) -> list[Verdict]:
    """All chosen rows, one after the other, shown as they end. Raises Unavailable where nsqd or the floor is not
    built."""
    rows = [ROWS[name] for name in chosen("row", options.names, ROWS)]
    for row in rows:
        _refuse_missing(row)
    refuse_without_block(options.document, BLOCK)
    started, verdicts = time.time(), []
    for row in rows:
        verdict, outcome = await _measure(row, options, console)
        verdicts.append(verdict)
        show(console, outcome)
        if options.document is not None:
            keep(options.document, outcome)
            outcomes = kept(options.document, ROWS)
            write_block(options.document, BLOCK, markdown(outcomes))
            picture(options.document, outcomes)
    if options.json_file is not None:
        _write_json(options, verdicts, started, options.json_file)
    return verdicts


def _refuse_missing(row: Row) -> None:
    """Before an hour of measuring rather than after it."""
    if "nsqd" in row.systems:
        peer("nsqd")
    if "floor" in row.systems:
        floor_program()


async def _measure(row: Row, options: NsqdOptions, console: Console) -> tuple[Verdict, Measured]:
    started, rounds, measure = time.time(), Rounds(options.pairs), row.begin()
    console.print(f"[bold]{row.name}[/]: {row.claim}")
    while rounds.more():
        number = len(rounds.done)
        with (
            TemporaryDirectory(prefix="srtm-nsqd-") as folder,
            console.status(f"{row.name}, round {number + 1} of {options.pairs}"),
        ):
            rounds.done.append(await measure(Turn(Path(folder), options.seconds, options.seed + number)))
        for sample in rounds.done[-1]:
            console.print(_line(row, sample))
    verdict = judge(row, rounds.done, {"pairs": options.pairs, "seconds": options.seconds, "seed": options.seed})
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


def _line(row: Row, sample: Sample) -> str:
    shown = [figure for figure in row.figures if figure.key in sample.values]
    said = ", ".join(f"{figure.label} {sample.values[figure.key]:,.{figure.digits}f}" for figure in shown)
    doubt = f" (does not count: {'; '.join(sample.reasons)})" if sample.reasons else ""
    return f"  {sample.system}: {said}{doubt}"


def show(console: Console, outcome: Measured) -> None:
    drawn = Table("", *outcome.systems, header_style="bold")
    for figure in outcome.figures:
        drawn.add_row(figure.label, *(figure.cell(system) for system in outcome.systems))
    if drawn.rows:
        console.print(f"Medians of {outcome.rounds} rounds ({100 * outcome.coverage:.0f} % intervals)")
        console.print(drawn)
    for check in outcome.checks:
        colour = "green" if check.kept else "red"
        console.print(f"[{colour}]{check.what}: {check.measured}, must be {check.bound}[/]")
    console.print(f"[bold {'green' if outcome.reached else 'red'}]{outcome.line}[/]")


def _write_json(options: NsqdOptions, verdicts: Sequence[Verdict], started: float, json_file: str) -> None:
    settings = {"pairs": options.pairs, "seconds": options.seconds}
    results = Results.of_verdicts("bench nsqd", verdicts, seed=options.seed, started=started, settings=settings)
    write_results(json_file, results)
