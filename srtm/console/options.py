"""Adds ``--token-file`` and ``--ca-file`` to every command that asks a distributor or a limit service."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from srtm.net.tls_trust import CA_VARIABLE
from srtm.net.tokens import read_token

TokenFileOption = Annotated[str | None, typer.Option(metavar="FILE", help="File with the token of --token.")]
_ADDRESSES = {"distributor", "url"}
_OPTIONS = {
    "token_file": TokenFileOption,
    "ca_file": Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Certificates (PEM) to trust for https:// URLs. Default: ${CA_VARIABLE}, else the system's.",
        ),
    ],
}


def add_trust(app: typer.Typer) -> None:
    """Add the options to every command of ``app`` that takes ``--distributor`` or ``--url``, but for those it has."""
    for command in app.registered_commands:
        if command.callback is not None and inspect.signature(command.callback).parameters.keys() & _ADDRESSES:
            command.callback = _with_trust(command.callback)


def _with_trust(command: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(command, eval_str=True)
    options = {name: kind for name, kind in _OPTIONS.items() if name not in signature.parameters}

    @wraps(command)
    def run(ca_file: str | None = None, **given: Any) -> Any:
        if ca_file is not None:
            os.environ[CA_VARIABLE] = ca_file  # every client of this process reads it
        token_file = given.pop("token_file", None) if "token_file" in options else None
        if token_file is not None:
            given["token"] = read_token("token_file", token_file)
        return command(**given)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**inspect.get_annotations(command, eval_str=True), **options}
    return run
