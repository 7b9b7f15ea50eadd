"""``srtm topic export | diff | decisions``: a topic as a file, what a file would change, and why it is as it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from srtm.client.distributor import Json
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.errors import BadInput
from srtm.operations.topic_difference import differences
from srtm.topics.file import read_topic_file, topic_name

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]


def export(
    name: NameArgument,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write it. Default: here.")] = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
) -> None:
    """Write a topic as a topic file, its publishers in it. Submitted again it changes nothing."""
    from srtm.operations.topic_file_text import topic_file_text

    text = topic_file_text(ask_distributor(distributor, token, lambda client: client.document(name)))
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput("output", str(output), f"must be a file that can be written ({error.strerror})") from error


def diff(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml")],
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Show what submitting the file would change. Status 1: something."""
    from srtm.topics.spec import parse_topic_json

    document = read_topic_file(file)
    then = parse_topic_json(document).to_json()
    now = ask_distributor(distributor, token, lambda client: client.document(topic_name(document)))
    lines = differences(now, then)
    show("topic diff", {"differences": lines}, json_file, partial(_show_lines, lines or ["no difference"]))
    return 1 if lines else 0


def decisions(
    name: NameArgument,
    most: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show what was placed where and why, newest first."""
    found = ask_distributor(distributor, token, lambda client: client.decisions(name))[:most]
    show("topic decisions", found, json_file, partial(_show_decisions, found))


def with_changes(document: Json, changes: Json) -> dict[str, Any]:
    """``document`` with the settings of ``changes``; those of tables are taken one by one."""
    merged = dict(document)
    for key, value in changes.items():
        merged[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def _show_lines(lines: list[str], console: Console) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _show_decisions(found: list[Json], console: Console) -> None:
    for decision in found:
        first, *rest = decision["lines"]
        _show_lines([f"{decision['at']}  {first}", *(f"    {line}" for line in rest)], console)
