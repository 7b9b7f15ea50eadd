"""What the commands of the benches have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

SeedOption = Annotated[int, typer.Option(help="Of the traffic: the same seed sends at the same instants.")]


def console(json_file: str | None = None) -> Console:
    """For people; out of the way where standard output carries the JSON."""
    return Console(highlight=False, stderr=json_file == "-")


def saying(json_file: str | None = None) -> Callable[[str], None]:
    """Lines for people, as long as they are."""
    return partial(console(json_file).print, soft_wrap=True)
