"""Shows the result of a command: tables for people, one JSON document for programs (``--json``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from srtm.console.tables import PeopleTable
from srtm.errors import BadInput
from srtm.text import figure
from srtm.version import __version__

SCHEMA = 2  # version of the JSON documents; it grows with every incompatible change
_NOTHING_IF_EMPTY = {"mqtt_address", "phase", "reason"}
_PIPE_COLUMNS = 80  # characters


def refuse_unwritable(field: str, file: str | None) -> None:
    """Check before a command runs that its output file can be written; None and ``-`` pass. Raises BadInput."""
    if file is None or file == "-":
        return
    path = Path(file)
    if path.is_dir() or not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise BadInput(field, file, "must be a file that can be written, in a directory that exists")


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
        help="URL of a distributor; may be repeated. Default: $SRTM_DISTRIBUTOR (separated by commas), "
        "else http://127.0.0.1:4190.",
    ),
]
TokenOption = Annotated[str | None, typer.Option("--token", envvar="SRTM_TOKEN", help="Bearer token of the services.")]


def show(command: str, result: object, json_file: str | None, display: Callable[[Console], None]) -> None:
    """Show a result: as JSON in ``json_file`` (``-``: standard output), and by ``display`` for people.

    ``display`` is not called if the JSON goes to standard output. Raises BadInput if the file cannot be written.
    """
    if json_file is not None:
        write_json(command, result, json_file)
    if json_file != "-":
        display(people_console())


def people_console(*, stderr: bool = False) -> Console:
    """Return a console that prints names unchanged, even if they look like markup or emoji."""
    return Console(highlight=False, markup=False, emoji=False, width=people_width(), stderr=stderr)


def people_width() -> int | None:
    """Return the width for standard output, characters; None: the terminal's. A pipe gets $COLUMNS, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if sys.stdout.isatty():
        return None
    return int(columns) if columns.isdecimal() and int(columns) else _PIPE_COLUMNS


def write_json(command: str, result: object, json_file: str) -> None:
    """Write a result as JSON. The file appears complete or not at all. Raises BadInput."""
    document = {"schema": SCHEMA, "command": command, "version": __version__, "result": _known(result)}
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


def _known(value: Any) -> Any:
    """Return ``value`` with null for what is not known: figures beside a ``count`` of 0, and texts that are empty."""
    if isinstance(value, list):
        return [_known(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("count") == 0:
        return {key: None if isinstance(each, float) else each for key, each in value.items()}
    return {key: None if each == "" and key in _NOTHING_IF_EMPTY else _known(each) for key, each in value.items()}


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> PeopleTable:
    """Return a table of ``rows``. The first ``left`` columns are text, the others numbers (aligned right)."""
    return PeopleTable(title, tuple(columns), [tuple(map(number, row)) for row in rows], left)


def number(value: object) -> str:
    """Format a table cell: three significant digits below 1,000, whole numbers above; a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
