"""``srtm bench NAME --help``: whoever starts a bench knows beforehand for how long."""

from __future__ import annotations

import re

import pytest
import typer

from bench.commands.main import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
GROUPS = {"testbed"}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - GROUPS))
def test_the_help_of_a_bench_says_how_long_it_takes(name: str) -> None:
    assert re.search(r"\b(seconds|minutes?|hours?|how long it will take)\b", COMMANDS[name].help)


@pytest.mark.parametrize(("name", "what"), [("nsqd", "make peers"), ("peers", "what brings it")])
def test_and_what_it_needs_that_is_not_here(name: str, what: str) -> None:
    assert what in COMMANDS[name].help
