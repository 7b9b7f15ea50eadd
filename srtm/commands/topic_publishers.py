"""``srtm topic publishers``: lists a topic's publishers and where each belongs, or changes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, number, show, table
from srtm.errors import BadInput
from srtm.text import plural

_LARGEST_TABLE = 1_000  # rows; more are printed as lines, because a table is laid out as a whole
_COLUMNS = ("ids", "groups", "brokers", "rates", "processes", "batches", "pinned")  # of the distributor's answer
_KEYS = ("id", "group", "broker", "rate", "process", "batch", "pinned")  # of an object here


def publishers(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    add: Annotated[list[str] | None, typer.Option("--add", metavar="ID=RATE", help="Add a publisher, msg/s.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--remove", metavar="ID", help="Remove a publisher.")] = None,
    broker: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that belong to this broker.")] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this correlation group.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; repeatable.")] = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """List the publishers of a topic and their brokers. With --add and --remove, change them and show the change."""
    added, removed = [_declared(text) for text in add or ()], list(drop or ())
    if (added or removed) and (broker or group or ids):
        raise BadInput("publishers", name, "are either changed (--add, --remove) or listed (--broker, --group, --id)")
    wanted = [each["id"] for each in added] if added or removed else ids

    async def ask(client: DistributorClient) -> list[Json]:
        if added or removed:
            await client.change_publishers(name, add=added, remove=removed)
        if added or not removed:
            return _rows(await client.publishers(name, broker), group, wanted)
        return []

    found = ask_distributor(distributor, token, ask)
    show("topic publishers", found, json_file, partial(_show, name, found, len(added), removed))


def _declared(text: str) -> Json:
    """Convert ``ID=RATE`` of ``--add`` to a publisher. Raises BadInput."""
    publisher_id, _, rate = text.rpartition("=")
    try:
        return {"id": publisher_id, "rate": float(rate)}
    except ValueError:
        raise BadInput("add", text, "must be ID=RATE, the rate in msg/s") from None


def _rows(columns: Json, group: str | None, ids: Sequence[str] | None) -> list[Json]:
    """Return the publishers of a group, and with these ids, one object each. Null: no broker, or no group."""
    wanted = None if ids is None else set(ids)
    columns = {"pinned": [False] * len(columns["ids"]), **columns}  # a distributor of before says nothing of it
    each = zip(*(columns[column] for column in _COLUMNS), strict=True)
    return [
        {**dict(zip(_KEYS, row, strict=True)), "group": row[1] or None}
        for row in each
        if (group is None or row[1] == group) and (wanted is None or row[0] in wanted)
    ]


def _show(name: str, found: list[Json], added: int, removed: Sequence[str], console: Console) -> None:
    if added or removed:
        console.print(f"{name}: {added:,} {plural(added, 'publisher')} added, {len(removed):,} removed")
    rows = [
        (row["id"], row["group"] or "", row["broker"], row["rate"], "pinned" if row["pinned"] else "") for row in found
    ]
    if len(rows) > _LARGEST_TABLE:
        sys.stdout.writelines(_lines(rows))
    elif rows or not removed:
        console.print(table("", ["publisher", "group", "broker", "msg/s", ""], rows, left=3))


def _lines(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield rows with tabs between the columns."""
    for row in rows:
        yield "\t".join(map(number, row)).rstrip("\t") + "\n"
