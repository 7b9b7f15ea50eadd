"""Writes the help of ``srtm broker`` in the style of all other commands, whose library takes 0.2 s to import."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import Any

_WIDEST = 80  # columns, whatever the terminal has
_TEXT_AT = 34  # column
_DEFAULT = re.compile(r"(?P<text>.*?)(?: \(default: (?P<default>.*)\))?", re.DOTALL)


class FlagHelp(argparse.HelpFormatter):
    """As typer's: long flags, sentences, choices in angle brackets, and the default at the end."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDEST) - 2
        super().__init__(prog, max_help_position=_TEXT_AT, width=width)

    def add_usage(self, *_given: Any, **_named: Any) -> None:
        self._add_item(lambda: f"Usage: {self._prog} [OPTIONS]\n\n", [])

    def add_text(self, text: str | None) -> None:
        if text is not None and text is not argparse.SUPPRESS:
            self._add_item(
                lambda: f"{textwrap.fill(text, self._width, initial_indent='  ', subsequent_indent='  ')}\n\n", []
            )

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and heading.capitalize())

    def _format_action_invocation(self, action: argparse.Action) -> str:
        flags = ", ".join(flag for flag in action.option_strings if flag.startswith("--"))
        return flags if action.nargs == 0 else f"{flags} {self._value(action)}"

    def _value(self, action: argparse.Action) -> str:
        if action.choices is not None:
            return f"<{'|'.join(map(str, action.choices))}>"
        named = action.metavar or action.dest.upper()
        return f"<{named}>" if "|" in named else str(named)

    def _get_help_string(self, action: argparse.Action) -> str:
        parts = _DEFAULT.fullmatch(action.help or "")
        text, default = ("", None) if parts is None else (parts["text"], parts["default"])
        notes = ["required"] if action.required else [] if default is None else [f"default: {default}"]
        return "  ".join([f"{text[:1].upper()}{text[1:]}.", *(f"[{note}]" for note in notes)])

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)
