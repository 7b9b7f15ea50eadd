"""Shell completion is typer's. Here it learns the flags of those commands that typer does not parse."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

_ASKED = "_SRTM_COMPLETE"  # a shell that asks for completions sets it, and one of the others to the words so far
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def add_forwarded(app: typer.Typer) -> None:
    """Give the command of ``app`` that a shell wants to complete its flags, if it parses its arguments by itself."""
    if _ASKED not in os.environ:
        return
    lines = (os.environ.get(name, "").split() for name in _WORDS)
    command = next((words[1] for words in lines if len(words) > 1), None)
    if command in _FLAGS:
        app.command(command)(_with_flags(_FLAGS[command]()))
    if command == "bench":
        from bench.commands.main import app as bench

        app.add_typer(bench, name="bench")


def _of_broker() -> Sequence[str]:
    from broker.options import settings

    return [setting.flags[0] for setting in settings().values()]


def _of_nsqd() -> Sequence[str]:
    from broker.nsqd.options import TABLE

    return [f"--{option.flag}" for option in TABLE]


_FLAGS = {"broker": _of_broker, "nsqd": _of_nsqd}


def _with_flags(flags: Sequence[str]) -> Callable[..., None]:
    """Return a command that has these flags, and does nothing."""

    def nothing(**given: Any) -> None: ...

    names = [f"flag_{number}" for number in range(len(flags))]
    kinds = [Annotated[str | None, typer.Option(flag)] for flag in flags]
    nothing.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in zip(names, kinds, strict=True)
        ]
    )
    nothing.__annotations__ = dict(zip(names, kinds, strict=True))
    return nothing
