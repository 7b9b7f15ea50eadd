"""Adds ``--token-file`` and ``--ca-file`` to every command that asks a distributor."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from srtm.net.tls_trust import CA_VARIABLE
from srtm.net.tokens import read_token

_OPTIONS = {
    "token_file": Annotated[str | None, typer.Option(metavar="FILE", help="File with the token of --token.")],
    "ca_file": Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Certificates (PEM) to trust for https:// URLs. Default: ${CA_VARIABLE}, else the system's.",
        ),
    ],
}


def add_trust(app: typer.Typer) -> None:
    """Add the options to every command of ``app`` that takes ``--distributor``."""
    for command in app.registered_commands:
        if command.callback is not None and "distributor" in inspect.signature(command.callback).parameters:
            command.callback = _with_trust(command.callback)


def _with_trust(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run(token_file: str | None = None, ca_file: str | None = None, **given: Any) -> Any:
        if ca_file is not None:
            os.environ[CA_VARIABLE] = ca_file  # every client of this process reads it
        if token_file is not None:
            given["token"] = read_token("token_file", token_file)
        return command(**given)

    signature = inspect.signature(command, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**inspect.get_annotations(command, eval_str=True), **_OPTIONS}
    return run
