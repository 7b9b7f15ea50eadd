"""What the commands of the benches have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from bench.harness.load.run_files import runs_beside
from srtm.console.output import refuse_unwritable

SeedOption = Annotated[int, typer.Option(help="Of the traffic: the same seed sends at the same instants.")]

DocumentOption = Annotated[
    bool, typer.Option("--document", help="Write the page under docs/results too; sources must be committed.")
]


def console(json_file: str | None = None) -> Console:
    """For people; out of the way where standard output carries the JSON."""
    return Console(highlight=False, stderr=json_file == "-")


def saying(json_file: str | None = None) -> Callable[[str], None]:
    """Lines for people, as long as they are."""
    return partial(console(json_file).print, soft_wrap=True)


def _json_file(context: typer.Context, file: str | None) -> str | None:
    refuse_unwritable("json", file)
    context.with_resource(runs_beside(file))
    return file


RunsJsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE.json",
        help="Write the result as JSON to FILE.json (-: standard output), and each run's .json, .hlog and .hgrm into "
        "FILE-runs beside it.",
        callback=_json_file,
    ),
]
