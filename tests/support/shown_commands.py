"""The command lines of ``srtm`` that a document shows, and whether the command takes them: nothing is run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from bench.commands.main import app as bench_app
from bench.demo.run import app as demo_app
from broker.nsqd.flags import parse_flags
from broker.nsqd.options import TABLE
from broker.options import _parser
from srtm.commands.app import app
from srtm.console.usage import usage_text
from srtm.errors import BadInput
from tests.support.shown_blocks import block_lines

_PUNCTUATION = "|&;<>()"
_ELSEWHERE = "..."  # words that the reader adds
_COMMANDS: dict[str, Any] = {
    "srtm": typer.main.get_command(app),
    "bench": typer.main.get_command(bench_app),
    "demo": typer.main.get_command(demo_app),
}


def shown_commands(text: str) -> list[list[str]]:
    """The words after ``srtm`` of each command line in the indented blocks of a document."""
    commands = [command for line in block_lines(text) if "srtm " in line for command in _simple_commands(line)]
    return [words[1:] for words in commands if words[0] in ("srtm", ".venv/bin/srtm")]


def _simple_commands(line: str) -> list[list[str]]:
    """The commands of a shell's line, without comments and redirections; none if it is no shell's line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    words = iter(tokens)
    for word in words:
        if not set(word) <= set(_PUNCTUATION):
            commands[-1].append(word)
        elif word[0] in "<>":
            next(words, None)  # the file
            if commands[-1] and commands[-1][-1].isdecimal():
                commands[-1].pop()  # the descriptor, as in 2>&1
        else:
            commands.append([])
    return [command for command in commands if command]


def refusal(words: Sequence[str]) -> str | None:
    """Why ``srtm WORDS...`` is refused before it does anything; None: it is not."""
    try:
        _parse(list(words))
    except BadInput as error:
        return str(error)
    except typer.TyperException as error:
        return usage_text(error)
    except typer.Exit:  # --help, --version
        return None
    return None


def unknown_flags(words: Sequence[str]) -> list[str]:
    """The flags of ``srtm WORDS...`` that the command lacks, wherever they stand."""
    command = _COMMANDS.get(words[0], _COMMANDS["srtm"])
    known = {"--help"}
    if words[:1] == ["broker"]:
        known |= set(_parser()._option_string_actions)
    elif words[:1] == ["nsqd"]:
        known |= {f"--{option.flag}" for option in TABLE} | {"--config", "--version"}
    else:
        for word in words:
            command = getattr(command, "commands", {}).get(word, command)
        known |= {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0].rstrip(".,;)") for word in words if word.startswith("--")]
    return [flag for flag in given if flag not in known]


def _parse(words: list[str]) -> None:
    if words[:1] == ["broker"]:
        _parse_broker([word for word in words[1:] if word != _ELSEWHERE], complete=_ELSEWHERE not in words)
    elif words[:1] == ["nsqd"]:
        parse_flags(words[1:])
    elif words[:1] in (["bench"], ["demo"]):
        _parse_typer(_COMMANDS[words[0]], f"srtm {words[0]}", words[1:])
    else:
        _parse_typer(_COMMANDS["srtm"], "srtm", words)


def _parse_broker(words: list[str], *, complete: bool) -> None:
    parser = _parser()

    def refuse(message: str) -> NoReturn:
        raise BadInput("broker", None, message)

    parser.error = refuse  # type: ignore[method-assign]
    if not complete:
        words = ["--name", "any", *words]
    parser.parse_args(words)


def _parse_typer(command: Any, name: str, words: list[str], parent: Any = None) -> None:
    context = command.make_context(name, words, parent=parent)
    if hasattr(command, "resolve_command"):  # a group
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        _parse_typer(found, name, rest, context)
