"""Adds ``--log-level`` and ``--log-format`` to commands that run a service. A broker's are in its own parser."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from srtm.console.running import starts_services
from srtm.log import PROCESS, Format, Level

_OPTIONS = {
    "log_level": ("info", Annotated[Level, typer.Option(help="Lowest level of log lines that are written.")]),
    "log_format": ("text", Annotated[Format, typer.Option(help="Log lines as text, or as JSON objects.")]),
}
# What this process starts (``srtm up``, a scaler) logs as it does, unless it is told otherwise.
_CHILDREN = ("BROKER", "DISTRIBUTOR")


def add_log_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options to a service's command. They are in force before it runs."""

    @wraps(command)
    def run(log_level: Level = "info", log_format: Format = "text", **given: Any) -> int:
        if starts_services():
            PROCESS.level, PROCESS.format = log_level, log_format
            _tell_children({"LOG_LEVEL": log_level, "LOG_FORMAT": log_format})
        return command(**given)

    signature = inspect.signature(command, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in _OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    kinds = {name: kind for name, (_, kind) in _OPTIONS.items()}
    run.__annotations__ = {**inspect.get_annotations(command, eval_str=True), **kinds}
    return run


def _tell_children(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        if value != _OPTIONS[name.lower()][0]:  # else files of theirs may say otherwise
            for child in _CHILDREN:
                os.environ.setdefault(f"SRTM_{child}_{name}", value)
