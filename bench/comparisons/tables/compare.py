"""The rows of a table, one after the other: our broker beside other systems.

The same load in turns on the same machine (ours, theirs, the floor, ours, ...), each run with a fresh process and an
empty data folder. Asked to, it keeps each row's outcome and writes the page anew from all that are kept: rows may be
measured one by one. ``--against``: another build of this project takes the place of the other systems.
"""

from __future__ import annotations

import time
from functools import partial

from rich.console import Console

from bench.comparisons.builds import refuse_document, row_against
from bench.comparisons.rows.row_runs import RowOptions, measure, show
from bench.comparisons.tables.document import RowTable, keep, kept, page_of, picture
from bench.console.selection import chosen
from bench.harness.results.comparison import Round, Row, Sample
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import Stored, refuse_unpublishable, store
from bench.harness.results.results import Results, write_results
from bench.harness.results.verdict import Verdict
from bench.harness.systems.peer_servers import ALL, missing
from bench.harness.systems.systems import floor_program, peer
from srtm.errors import Unavailable


async def compare(table: RowTable, options: RowOptions, console: Console) -> list[Verdict]:
    """All chosen rows, one after the other, shown as they end. Raises Unavailable where another system is not here."""
    rows = [table.rows[name] for name in chosen("row", options.names, table.rows)]
    if options.against is not None:
        refuse_document(options.document)
        rows = [row_against(row, options.against) for row in rows]
    for row in rows:
        _refuse_missing(row)
    refuse_unpublishable(options.document)
    started, verdicts = time.time(), []
    for row in rows:
        console.print(f"[bold]{row.name}[/]: {row.claim}")
        verdict, outcome = await measure(row, options, console, partial(_tell, console, row))
        verdicts.append(verdict)
        show(console, outcome)
        if options.document is not None:
            keep(table, options.document, outcome)
            outcomes = kept(table, options.document)
            store(options.document, table.name, Stored(page=page_of(table, outcomes, Origin.here(started))))
            picture(table, options.document, outcomes)
    settings = options.settings
    results = Results.of_verdicts(
        f"bench {table.name}", verdicts, seed=options.seed, started=started, settings=settings
    )
    write_results(options.json_file, results)
    return verdicts


def _refuse_missing(row: Row) -> None:
    """Before an hour of measuring rather than after it."""
    if "nsqd" in row.systems:
        peer("nsqd")
    if "floor" in row.systems:
        floor_program()
    if any(system.startswith("mosquitto") for system in row.systems) and (said := missing(ALL["mosquitto"])):
        raise Unavailable(said)


def _tell(console: Console, row: Row, samples: Round) -> None:
    for sample in samples:
        console.print(_line(row, sample))


def _line(row: Row, sample: Sample) -> str:
    shown = [figure for figure in row.figures if figure.key in sample.values]
    said = ", ".join(f"{figure.label} {sample.values[figure.key]:,.{figure.digits}f}" for figure in shown)
    doubt = f" (does not count: {'; '.join(sample.reasons)})" if sample.reasons else ""
    return f"  {sample.system}: {said}{doubt}"
