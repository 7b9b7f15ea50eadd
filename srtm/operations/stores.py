"""``srtm store export`` and ``import``: a distributor's store in a file, and back into either database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from srtm.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="The distributor's store: export, import.", rich_markup_mode=None)

StoreOption = Annotated[
    str, typer.Option(metavar="URL", help="sqlite:///PATH, while no distributor uses it; or postgresql://...")
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The copy; -: standard output or input.")]


@app.command("export")
def export_to(file: FileArgument, store: StoreOption) -> None:
    """Copy a store to a file, which appears complete or not at all."""
    from distributor.storage.backup import export_store

    export = partial(export_store, store)
    _tell("exported", export(sys.stdout.buffer) if file == "-" else _written(Path(file), export))


@app.command("import")
def import_from(file: FileArgument, store: StoreOption) -> None:
    """Fill an empty database with a copy: all of it, or nothing if the copy is damaged."""
    from distributor.storage.backup import import_store

    if file == "-":
        return _tell("imported", import_store(store, sys.stdin.buffer))
    try:
        with Path(file).open("rb") as lines:
            return _tell("imported", import_store(store, lines))
    except OSError as error:
        raise BadInput("file", file, f"must be a file that can be read ({error.strerror})") from None


def _written(path: Path, export: Callable[[BinaryIO], dict[str, int]]) -> dict[str, int]:
    """Write a file that only its owner can read: a topic's publishers are nobody else's business."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            counts = export(out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except OSError as error:
        raise BadInput("file", str(path), f"must be a file that can be written ({error.strerror})") from None
    finally:
        fresh.unlink(missing_ok=True)
    return counts


def _tell(what: str, counts: dict[str, int]) -> None:
    rows = sum(counts.values())
    print(
        f"{what} {rows:,} rows: {counts['topics']:,} topics (removed ones too), {counts['brokers']:,} brokers",
        file=sys.stderr,
    )
