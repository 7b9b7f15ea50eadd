"""Refusals as problem+json (``srtm.control.Problem``): of routes, of the framework, and of checks that run before any
route."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from srtm.control import Problem
from srtm.errors import BadInput, InternalError, NotLeader, SrtmError, Unauthorized, Unavailable
from srtm.log import REQUEST_ID

Admit = Callable[[Request], Awaitable[None]]


def add_refusals(app: FastAPI) -> None:
    app.add_exception_handler(SrtmError, _refused)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(RequestValidationError, _bad_query)
    app.add_exception_handler(Exception, _failed)


class CheckedFirst:
    """A middleware that runs ``admit`` first, which raises an SrtmError for requests that must not be served.

    ``admit`` sees what comes before the body. ``closes``: the connection ends with a refusal, for it is not known where
    the next request begins.
    """

    def __init__(self, app: ASGIApp, admit: Admit, *, closes: bool = False) -> None:
        self._app = app
        self._admit = admit
        self._closes = closes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                await self._admit(Request(scope))
            except SrtmError as error:
                refusal = _refusal(error)
                if self._closes:
                    refusal.headers["Connection"] = "close"
                return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)


async def refuse_two_lengths(request: Request) -> None:
    """Raises BadInput for a body whose end two headers say: a proxy before this server may have believed the other."""
    lengths = [name for name in ("content-length", "transfer-encoding") if name in request.headers]
    if len(lengths) == 2:
        raise BadInput("Transfer-Encoding", request.headers["transfer-encoding"], "must not go with Content-Length")


def _problem(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    content = msgspec.json.encode(problem, enc_hook=str)
    return Response(content, problem.status, headers, "application/problem+json")


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, SrtmError):
        raise error
    return _refusal(error)


def _refusal(error: SrtmError) -> Response:
    field, value, rule = (getattr(error, name, None) for name in ("field", "value", "rule"))
    problem = Problem(
        title=error.title,
        status=error.http_status,
        detail=str(error),
        field=field,
        value=_shown(value),
        rule=rule,
        leader=error.leader if isinstance(error, NotLeader) else None,
        request_id=REQUEST_ID.get(),
    )
    return _problem(problem, _headers(error))


def _headers(error: SrtmError) -> dict[str, str]:
    if isinstance(error, Unavailable) and error.retry_after_s is not None:
        return {"Retry-After": f"{math.ceil(error.retry_after_s)}"}
    return {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}


def _shown(value: object) -> object:
    """A value that JSON knows, small enough to send back."""
    plain = value is None or isinstance(value, bool | int | float)
    return value if plain else str(value)[:200]


async def _not_served(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    problem = Problem(
        title=error.detail.lower(),
        status=error.status_code,
        detail=f"{error.detail}: see /openapi.json",
        request_id=REQUEST_ID.get(),
    )
    return _problem(problem, dict(error.headers or {}))


async def _bad_query(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return _refusal(BadInput(field, first["input"], first["msg"]))


async def _failed(_: Request, error: Exception) -> Response:
    """The server logs the error; the client learns that the fault is not its own."""
    return _refusal(InternalError(f"this service failed here ({type(error).__name__}); its log says more"))
