"""HTTP requests and responses as routes see them. The engine reads and writes the bytes (``broker/engine/src/http``).

If a handler raises one of ``srtm.errors``, the response is problem+json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from srtm.errors import BadInput, InternalError, NotFound, SrtmError, Unavailable
from srtm.log import REQUEST_ID, Log
from srtm.net.request_id import HEADER, request_id
from srtm.net.tokens import Scope, Tokens, who_asks

_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class BodyTooLarge(BadInput):
    """The request's body is larger than its route allows. Nothing was changed."""

    title = "body too large"
    http_status = 413

    def __init__(self, limit_bytes: int) -> None:
        super().__init__("body", f"more than {limit_bytes} bytes", f"must be at most {limit_bytes} bytes")


@dataclass(frozen=True, slots=True)
class Response:
    """A response. ``headers`` does not include Content-Type and Content-Length."""

    status: int = 200
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()


ReadBody = Callable[[int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``path`` and ``query`` are still percent-encoded; header names are lower-case."""

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    read_body: ReadBody = field(default=lambda _limit: _no_body(), repr=False)
    """``await read_body(limit_bytes)`` returns the whole body. Raises BodyTooLarge."""
    source: str = ""  # address of who asks

    @property
    def segments(self) -> list[str]:
        """The parts of the path, percent-decoded. Raises BadInput."""
        return [percent_decoded("path", part, plus=False) for part in self.path.split("/")[1:]]

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None. ``name``: in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def arguments(self) -> dict[str, str]:
        """Parse the query string by the rules of Go's net/url: the first value of a name wins.

        Raises BadInput for a bad escape or a ``;``.
        """
        found: dict[str, str] = {}
        for part in self.query.split("&"):
            if ";" in part:
                raise BadInput("query", part, "must not hold a semicolon")
            name, _, value = part.partition("=")
            if part:
                found.setdefault(percent_decoded("query", name), percent_decoded("query", value))
        return found


async def _no_body() -> bytes:
    return b""


def percent_decoded(where: str, text: str, *, plus: bool = True) -> str:
    """Decode %XX escapes, and + as a space. Raises BadInput for a broken escape or bytes that are not UTF-8."""
    if _BAD_ESCAPE.search(text):
        raise BadInput(where, text, "every % must be followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text.replace("+", " ") if plus else text).decode()
    except UnicodeDecodeError:
        raise BadInput(where, text, "must be UTF-8") from None


def json_response(value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return a response with ``value`` as JSON."""
    return Response(status, msgspec.json.encode(value), "application/json; charset=utf-8", headers)


def text_response(text: str) -> Response:
    """Return a response with plain text."""
    return Response(200, text.encode(), "text/plain; charset=utf-8")


def problem(error: SrtmError, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return the ``application/problem+json`` (``srtm.control.Problem``) of an error."""
    body: dict[str, object] = {"title": error.title, "status": error.http_status, "detail": str(error)}
    if (identity := REQUEST_ID.get()) is not None:
        body["request_id"] = identity
    for name in ("field", "value", "rule"):
        if hasattr(error, name):
            body[name] = getattr(error, name)
    if isinstance(error, Unavailable) and error.retry_after_s is not None:
        headers += (("Retry-After", str(math.ceil(error.retry_after_s))),)
    return Response(error.http_status, msgspec.json.encode(body, enc_hook=repr), _PROBLEM, headers)


class NoSuchMethod(BadInput):
    """The path exists, the method does not."""

    title = "method not allowed"
    http_status = 405

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__("method", method, f"must be one of {', '.join(allowed)}")
        self.allow = ", ".join(allowed)


Handler = Callable[[Request], Awaitable[Response]]
# Takes the request, and by keyword one str for each {name} of the pattern.
RouteHandler = Callable[..., Awaitable[Response]]


class _Route(NamedTuple):
    handler: RouteHandler
    scopes: tuple[Scope, ...]  # that may use it, besides operators


_OPEN = "/healthz"  # needs no token
_PROBLEM = "application/problem+json"


class Router:
    """Finds the handler for a method and a path, by patterns such as ``/v1/topics/{name}/bucket``.

    ``log``: has a line for each change that somebody makes by a route of operators alone.

    Raises NotFound, NoSuchMethod, Unauthorized, Forbidden. The caller turns them into responses.
    """

    def __init__(self, tokens: Tokens | None, log: Log | None = None) -> None:
        self._routes: list[tuple[list[str], dict[str, _Route]]] = []
        self._tokens = tokens
        self._log = log

    def add(self, method: str, pattern: str, handler: RouteHandler, *, scopes: tuple[Scope, ...] = ()) -> None:
        """Register a handler. ``scopes``: the scopes of tokens that may use it, besides ``operator``."""
        parts = pattern.split("/")[1:]
        methods = next((known for path, known in self._routes if path == parts), None)
        if methods is None:
            methods = {}
            self._routes.append((parts, methods))
        methods[method] = _Route(handler, scopes)

    async def __call__(self, request: Request) -> Response:
        methods, names = self._find(request)
        route = methods.get(request.method)
        if self._tokens is not None and request.path != _OPEN:
            self._tokens.check(request.header("authorization"), route.scopes if route is not None else ())
        if not methods:
            raise NotFound("path", request.path)
        return await self._dispatch(methods, names, request)

    def _find(self, request: Request) -> tuple[dict[str, _Route], dict[str, str]]:
        segments = request.segments
        for parts, methods in self._routes:
            names = _match(parts, segments)
            if names is not None:
                return methods, names
        return {}, {}

    async def _dispatch(self, methods: dict[str, _Route], names: dict[str, str], request: Request) -> Response:
        allowed = sorted([*methods, "OPTIONS"])
        if request.method == "OPTIONS":
            return Response(headers=(("Allow", ", ".join(allowed)),))
        route = methods.get(request.method)
        if route is None:
            raise NoSuchMethod(request.method, allowed)
        response = await route.handler(request, **names)
        if self._log is not None and request.method != "GET" and not route.scopes and response.status < 300:
            target = f"{request.path}{'?' if request.query else ''}{request.query}"
            who = who_asks(self._tokens, request.header("authorization"))
            self._log.info("changed", who=who, source=request.source, request=f"{request.method} {target}")
        return response


def _match(parts: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(parts) != len(segments):
        return None
    names = {}
    for part, segment in zip(parts, segments, strict=True):
        if part.startswith("{"):
            if not segment:
                return None
            names[part[1:-1]] = segment
        elif part != segment:
            return None
    return names


async def respond(handler: Handler, request: Request, log: Log) -> Response:
    """Run a handler and turn its errors into responses, under the request's id.

    The answer has a header with the id if the client sent one, or if it is a problem: nsqd's answers have none.
    Requests are logged at level debug.
    """
    given = request.header(HEADER.lower())
    identity = request_id(given)
    mark = REQUEST_ID.set(identity)
    try:
        response = await _respond(handler, request, log)
        log.debug("request", method=request.method, path=request.path, status=response.status)
    finally:
        REQUEST_ID.reset(mark)
    if given is None and response.content_type != _PROBLEM:
        return response
    return replace(response, headers=(*response.headers, (HEADER, identity)))


async def _respond(handler: Handler, request: Request, log: Log) -> Response:
    """This is the one place that catches every exception: a bug must cost one request, not the service."""
    try:
        return await handler(request)
    except SrtmError as error:
        return problem(error, (("Allow", error.allow),) if isinstance(error, NoSuchMethod) else ())
    except Exception as error:  # noqa: BLE001
        log.failure("a request failed because of a bug", method=request.method, path=request.path, error=repr(error))
        return problem(InternalError(f"{type(error).__name__}: see the log"))
