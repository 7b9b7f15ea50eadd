"""Formats typer's help and errors like all others: an option and what it takes; the option, the value, the rule."""

from __future__ import annotations

from typing import Any

import typer

_VALUE = "Input should be "


def command_of(app: typer.Typer) -> Any:
    """Return the command of ``app``. Its help names the value of each option, where typer names a Python type."""
    command = typer.main.get_command(app)
    _name_values(command)
    return command


def _name_values(command: Any) -> None:
    for parameter in command.params:
        if parameter.type_descriptor.is_choice:
            continue
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _nothing  # its name stands before it
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = parameter.name.upper().replace("_", "-")
    for each in getattr(command, "commands", {}).values():
        _name_values(each)


def _nothing(ctx: Any) -> None:
    """No name of a type."""


def usage_text(error: typer.TyperException) -> str:
    """Return the text for standard error. A command without its subcommand gets its help."""
    text = _message(error)
    if text.startswith("Usage: "):
        return text
    path = getattr(getattr(error, "ctx", None), "command_path", None)
    if text.startswith("No such command") and path is not None:
        return f"srtm: {text} {path} --help lists those there are."
    return f"srtm: {_refused_value(error) or text}"


def _message(error: typer.TyperException) -> str:
    format_message = getattr(error, "format_message", None)
    return str(error) if format_message is None else str(format_message())


def _refused_value(error: typer.TyperException) -> str | None:
    """Return ``--option: value: rule`` if pydantic refused the option's value; else None."""
    parameter = getattr(error, "param", None)
    refused = getattr(error.__cause__, "errors", None)
    if parameter is None or refused is None:
        return None
    first: dict[str, Any] = refused()[0]
    text = str(first.get("ctx", {}).get("error", first["msg"])).removesuffix(".")
    rule = text.replace(_VALUE, "must be ", 1) if text.startswith(_VALUE) else text
    return f"{parameter.opts[0]}: {first['input']!r}: {rule}"
