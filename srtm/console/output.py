"""How a command shows its result: a table for people, one JSON document for programs (``--json``, design section
11)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from srtm.console.tables import PeopleTable
from srtm.errors import BadInput
from srtm.version import __version__

SCHEMA = 1  # of the envelope and of every result in it; grows with an incompatible change
_PIPE_COLUMNS = 240


def refuse_unwritable(field: str, file: str | None) -> None:
    """Before anything is done rather than after it. Raises BadInput; None and ``-`` are nobody's files."""
    if file is None or file == "-":
        return
    path = Path(file)
    if path.is_dir() or not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise BadInput(field, file, "must be a file that can be written, in a folder that is there")


def _writable_json(file: str | None) -> str | None:
    refuse_unwritable("json", file)
    return file


JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the result as JSON to FILE (-: standard output).",
        callback=_writable_json,
    ),
]
DistributorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--distributor",
        metavar="URL",
        help="May be repeated. Default: $SRTM_DISTRIBUTOR (separated by commas), else http://127.0.0.1:4190.",
    ),
]
TokenOption = Annotated[str | None, typer.Option("--token", envvar="SRTM_TOKEN", help="Bearer token of the services.")]


def show(command: str, result: object, json_file: str | None, display: Callable[[Console], None]) -> None:
    """``display`` prints for people, unless standard output is taken by the JSON. Raises BadInput for a file that
    cannot be written."""
    if json_file is not None:
        write_json(command, result, json_file)
    if json_file != "-":
        display(people_console())


def people_console(*, stderr: bool = False) -> Console:
    """Shows names as they are, whatever of markup or emoji they look like."""
    return Console(highlight=False, markup=False, emoji=False, width=people_width(), stderr=stderr)


def people_width() -> int | None:
    """Of a console on standard output. A pipe has no width to keep to: a cell cut there would be a value lost."""
    return None if sys.stdout.isatty() else _PIPE_COLUMNS


def write_json(command: str, result: object, json_file: str) -> None:
    """The file appears whole or not at all."""
    document = {"schema": SCHEMA, "command": command, "version": __version__, "result": result}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if json_file == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    path = Path(json_file)
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_bytes(text)
        fresh.replace(path)
    except OSError as error:
        raise BadInput("json", json_file, f"must be a file that can be written ({error.strerror})") from error


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> PeopleTable:
    """The first ``left`` columns are text, the others numbers (aligned right)."""
    return PeopleTable(title, tuple(columns), [tuple(map(number, row)) for row in rows], left)


def number(value: object) -> str:
    """For a table cell: no more digits than a person reads; a dash for what is not known."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
