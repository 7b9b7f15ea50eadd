"""``srtm topic size``: computes the rate limit r and burst b that recorded traffic needs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from srtm.console.output import JsonOption, show, table
from srtm.errors import BadInput
from srtm.text import figure

if TYPE_CHECKING:
    from srtm.analysis.trace_sizing import Sizing


def size(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Answers of a broker's GET /v1/topics/NAME/trace, or CSV files with a column arrival_ns. "
            "Traces of brokers of one host are merged.",
        ),
    ],
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", metavar="R", help="Token rate, msg/s; may be repeated. Default: 1.02 to 2 x the load."),
    ] = None,
    percentile: Annotated[float, typer.Option(help="Percentage of messages that shall not wait.")] = 99.0,
    json_file: JsonOption = None,
) -> None:
    """Size a bucket for recorded traffic.

    The table has the smallest burst without access delay at the percentile, for a range of rates. Record at least
    600 s of traffic. For comparison the table has the values of Poisson traffic, Eq. (1) of the paper.
    """
    from srtm.analysis.arrivals import merged, read_arrivals
    from srtm.analysis.trace_sizing import sized

    if not 0 < percentile <= 99.999:  # false for NaN too
        raise BadInput("percentile", percentile, "must be above 0 and at most 99.999")
    found = sized(merged([read_arrivals(trace) for trace in traces]), percentile, rate or ())
    result = {**asdict(found), "warnings": found.warnings}
    show("topic size", result, json_file, lambda console: _show(found, console))


def _show(found: Sizing, console: Console) -> None:
    console.print(f"{found.messages:,} messages in {found.seconds:,.0f} s: {figure(found.load, 6)} msg/s")
    for warning in found.warnings:
        console.print(f"warning: {warning}", soft_wrap=True)
    columns = ["r msg/s", "r / load", f"b for p{found.percentile:g}", "+-", "b if Poisson", "Eq. (1) mean ms"]
    rows = [
        [
            size.rate,
            f"{size.rate / found.load:.3f}",
            size.burst,
            size.uncertainty,
            size.poisson_burst,
            f"{figure(size.poisson_mean_ms)}",
        ]
        for size in found.sizes
    ]
    console.print(table("", columns, rows, left=0))
