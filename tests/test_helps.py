"""The help of every command is in one style, whichever library parses its flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from bench.commands.main import app as bench_app
from bench.demo.run import app as demo_app
from srtm.cli import main
from srtm.commands.app import app
from srtm.console.usage import command_of

_HELP = re.compile(r"^  --help +Show this message and exit\.$", re.MULTILINE)
_TYPE = re.compile(r"<(str|int|float|path|list|bool|date|any)\b[^|>]*>")  # not <json|text>, which are the words to give
_OWN = {"broker", "nsqd", "bench", "demo"}  # what ``srtm`` forwards


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        if path != "srtm" or name not in _OWN:
            yield from commands(each, f"{path} {name}")


ALL = dict(
    [
        *commands(command_of(app), "srtm"),
        *commands(command_of(bench_app), "srtm bench"),
        *commands(command_of(demo_app), "srtm demo"),
    ]
)


def helps(path: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The text that people get. nsqd's is nsqd's: ``tests/interop/drop_in`` compares them."""
    if path == "srtm broker":
        with pytest.raises(SystemExit, match="0"):
            main(["broker", "--help"])
        return capsys.readouterr().out
    context = typer.Context(ALL[path], info_name=path)
    return f"{ALL[path].get_help(context)}\n"


@pytest.mark.parametrize("path", ["srtm broker", *ALL])
def test_a_help_is_in_the_style_of_all(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = helps(path, capsys)
    head, _, options = text.partition("\nOptions:\n")
    assert head.startswith(f"Usage: {path} [OPTIONS]")
    assert re.search(r"\n\n  [A-Z0-9][^\n]*", head), "a sentence says what it does"
    assert _HELP.search(options) is not None
    assert _TYPE.findall(text) == []
    assert max(map(len, text.splitlines())) <= 80


def said(text: str) -> Iterator[str]:
    """What is said of each option, in one line."""
    _, _, options = text.partition("\nOptions:\n")
    options = re.split(r"\n(?:\n|[A-Z])", options)[0]
    for option in re.split(r"^  (?=-)", options, flags=re.MULTILINE)[1:]:
        yield " ".join(option.split())


@pytest.mark.parametrize("path", ["srtm broker", *ALL])
def test_what_is_said_of_an_option_ends_as_a_sentence_or_with_its_default(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = [option for option in said(helps(path, capsys)) if option[-1] not in ".]?"]
    assert unfinished == []
