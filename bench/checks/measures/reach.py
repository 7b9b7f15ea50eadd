"""``srtm bench reach``: the figures that this project must reach, measured, each with its verdict.

Asked to, a full run writes its figures into docs/performance.md; a quick one is a smoke test and writes nothing there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from bench.checks.measures import idle, overload, ping, sigstop, split
from bench.console.selection import chosen
from bench.harness.results.document import markdown_table, refuse_without_block, write_block
from bench.harness.results.provenance import provenance
from bench.harness.results.results import Results, write_results
from bench.harness.results.verdict import Verdict

Measure = Callable[[Path, int, bool], Awaitable[Verdict]]
MEASURES: dict[str, Measure] = {
    "overload": overload.measure,
    "sigstop": sigstop.measure,
    "split": split.measure,
    "idle": idle.measure,
    "ping": ping.measure,
}


@dataclass(frozen=True)
class ReachOptions:
    names: Sequence[str] = ()  # keys of MEASURES; none: all of them
    quick: bool = False
    seed: int = 1
    split_seconds: float = split.SECONDS  # of each of its runs: there are thirty
    json_file: str | None = None
    document: Path | None = None  # to write figures into


async def reach(options: ReachOptions, console: Console) -> list[Verdict]:
    """All chosen measurements, one after the other, shown as they end."""
    started, verdicts = time.time(), []
    names = chosen("measurement", options.names, MEASURES)
    if not options.quick:
        refuse_without_block(options.document, *map(_block, names))
    with TemporaryDirectory(prefix="srtm-reach-") as folder:
        for name in names:
            with console.status(f"measuring {name}"):
                measure = partial(split.measure, seconds=options.split_seconds) if name == "split" else MEASURES[name]
                verdict = await measure(Path(folder), options.seed, options.quick)
            verdicts.append(verdict)
            show(console, verdict)
            if options.document is not None and not options.quick:
                write_block(options.document, _block(name), markdown(verdict, started))
    settings = {"quick": options.quick, **{verdict.name: verdict.settings for verdict in verdicts}}
    results = Results.of_verdicts("bench reach", verdicts, seed=options.seed, started=started, settings=settings)
    write_results(options.json_file, results)
    return verdicts


def _block(name: str) -> str:
    return f"reach {name}"


def show(console: Console, verdict: Verdict) -> None:
    console.print(verdict.claim)
    drawn = Table(header_style="bold")
    for column in ("", "measured", "must be", ""):
        drawn.add_column(column, overflow="fold")
    for check in verdict.checks:
        drawn.add_row(check.what, check.measured, check.bound, "yes" if check.kept else "NO")
    console.print(drawn)
    console.print(f"[bold {'green' if verdict.reached else 'red'}]{verdict.line}[/]")


def markdown(verdict: Verdict, started: float) -> str:
    """The block of a document: the claim, its checks, the verdict, where it was measured."""
    table = markdown_table(["", "measured", "must be", "reached"], [check.cells for check in verdict.checks])
    return f"{verdict.claim}\n\n{table}\n\n**{verdict.line}.** {provenance(started)}"
