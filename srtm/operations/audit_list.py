"""``srtm audit``: who changed what at the distributor."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from srtm.client.distributor import Json
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.operations.topic_difference import publisher_lines, settings


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
    show("audit", entries, json_file, partial(print_changes, entries))


def print_changes(entries: list[Json], console: Console) -> None:
    """Print entries of an audit log."""
    for entry in entries:
        at = datetime.fromtimestamp(entry["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        subject = f" ({entry['subject']})" if entry["subject"] else ""
        console.print(f"{at} UTC  {entry['who']} from {entry['source']}: {entry['what']}{subject}", soft_wrap=True)
        for line in difference_lines(entry):
            console.print(f"    {line}", soft_wrap=True)
    if not entries:
        console.print("no change is on record")


def difference_lines(entry: Json) -> list[str]:
    """Return a line for each value and publisher that differs; one line for what came or went."""
    before, after, publishers = entry["before"], entry["after"], entry.get("publishers")
    if before is None or after is None:
        return [] if before == after else ["made" if before is None else "removed"]
    counts = [each.get("publishers") for each in (before, after)]
    lines = settings(before, after)
    if counts[0] != counts[1]:
        lines.append(f"publishers: {counts[0]:,} -> {counts[1]:,}")
    return lines if publishers is None else [*lines, *publisher_lines(publishers)]
