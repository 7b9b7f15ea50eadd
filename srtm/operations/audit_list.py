"""``srtm audit``: who changed what at the distributor."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from srtm.client.distributor import Json
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show


def audit(
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Changes of one topic.")] = None,
    broker: Annotated[str | None, typer.Option(metavar="NAME", help="Changes of one broker.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="The latest N.")] = 20,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """List who changed what, from where, and what was different afterwards; newest first."""
    entries = ask_distributor(distributor, token, lambda client: client.audit(limit=limit, topic=topic, broker=broker))
    show("audit", entries, json_file, partial(_print, entries))


def _print(entries: list[Json], console: Console) -> None:
    for entry in entries:
        at = datetime.fromtimestamp(entry["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        subject = f" ({entry['subject']})" if entry["subject"] else ""
        console.print(f"{at} UTC  {entry['who']} from {entry['source']}: {entry['what']}{subject}", soft_wrap=True)
        for line in differences(entry["before"], entry["after"]):
            console.print(f"    {line}", soft_wrap=True)
    if not entries:
        console.print("no change is on record")


def differences(before: Any, after: Any) -> list[str]:
    """Return a line for each key that differs; one line for what came or went."""
    if before is None or after is None:
        return [] if before == after else ["made" if before is None else "removed"]
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key}: {_text(before.get(key))} -> {_text(after.get(key))}" for key in keys]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
