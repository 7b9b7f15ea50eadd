"""``srtm topic publishers``: lists a topic's publishers and where each belongs, or changes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Annotated, Any

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

    async def ask(client: DistributorClient) -> Json:
        if added or removed:
            await client.change_publishers(name, add=added, remove=removed)
        return await client.publishers(name, broker) if added or not removed else {}

    columns = ask_distributor(distributor, token, ask)
    objects = [dict(zip(_KEYS, row, strict=True)) for row in _rows(columns, group, wanted)] if json_file else []

    def display(console: Console) -> None:
        if added or removed:
            counted = f"{len(added):,} {plural(len(added), 'publisher')} added, {len(removed):,} removed"
            console.print(f"{name}: {counted}")
        if columns:
            _show(_rows(columns, group, wanted), console)

    show("topic publishers", objects, json_file, display)


def _declared(text: str) -> Json:
    """Convert ``ID=RATE`` of ``--add`` to a publisher. Raises BadInput."""
    publisher_id, _, rate = text.rpartition("=")
    try:
        return {"id": publisher_id, "rate": float(rate)}
    except ValueError:
        raise BadInput("add", text, "must be ID=RATE, the rate in msg/s") from None


def _rows(columns: Json, group: str | None, ids: Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
    """Yield the publishers of a group, and with these ids: values of ``_KEYS``. None: no broker, or no group."""
    if not columns:
        return
    wanted = None if ids is None else set(ids)
    columns = {"pinned": [False] * len(columns["ids"]), **columns}  # a distributor of before says nothing of it
    for row in zip(*(columns[column] for column in _COLUMNS), strict=True):
        publisher, its_group, *rest = row
        if (group is None or its_group == group) and (wanted is None or publisher in wanted):
            yield publisher, its_group or None, *rest


def _show(rows: Iterator[tuple[Any, ...]], console: Console) -> None:
    """Show a table, or lines with tabs between the columns, which come one by one."""
    shown = (
        (publisher, group or "", broker, rate, "pinned" if pinned else "")
        for publisher, group, broker, rate, _, _, pinned in rows
    )
    first = list(islice(shown, _LARGEST_TABLE + 1))
    if len(first) > _LARGEST_TABLE:
        sys.stdout.writelines(_lines(chain(first, shown)))
    else:
        columns = ["publisher", "group", "broker", "msg/s"]
        if any(pinned for *_, pinned in first):
            columns.append("note")
        console.print(table("", columns, [row[: len(columns)] for row in first], left=3))


def _lines(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    text = cache(number)  # of a million publishers many have one rate
    for publisher, group, broker, rate, pinned in rows:
        yield "\t".join((publisher, group, text(broker), text(rate), pinned)).rstrip("\t") + "\n"
