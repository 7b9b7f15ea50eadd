"""A small HTTP/1.1 server on trio: h11 keeps the protocol, this file adds streams, timeouts, routes and our errors.

For services that must answer at once (the broker): it imports trio, h11 and msgspec and nothing else. What holds: a
connection is kept alive for any number of requests; a body is read only when its handler asks, up to the limit that the
handler names; whatever bytes come, the answer is a real HTTP response or a closed connection, and nobody else notices.
A handler that raises one of ``srtm.errors`` is answered with problem+json.
"""

from __future__ import annotations

import hmac
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import h11
import msgspec
import trio

from srtm.errors import BadInput, InternalError, NotFound, SrtmError, Unavailable
from srtm.log import Log

_HEAD_LIMIT_BYTES = 16 * 1024
_UNREAD_LIMIT_BYTES = 64 * 1024  # a refused body up to this size is read and dropped so that the connection can go on
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ \S+ HTTP/\d\.\d\r?")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class BodyTooLarge(BadInput):
    """The request's body is over the limit of its route. Nothing was changed."""

    title = "body too large"
    http_status = 413

    def __init__(self, limit_bytes: int) -> None:
        super().__init__("body", f"more than {limit_bytes} bytes", f"must be at most {limit_bytes} bytes")


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()


ReadBody = Callable[[int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """``segments``: the path's parts, percent-decoded; ``query`` is as it came; header names are lower-case."""

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    read_body: ReadBody = field(default=lambda _limit: _no_body(), repr=False)
    """``await read_body(limit_bytes)``: the whole body. Raises BodyTooLarge, BadInput (malformed). Call it once."""

    @property
    def segments(self) -> list[str]:
        return [percent_decoded("path", part, plus=False) for part in self.path.split("/")[1:]]

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def arguments(self) -> dict[str, str]:
        """Of the query string; the first value of a name wins. Raises BadInput on a bad escape or a ``;`` (as Go's
        parser)."""
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
    """Raises BadInput for a broken escape or bytes that are not UTF-8."""
    if _BAD_ESCAPE.search(text):
        raise BadInput(where, text, "every % must be followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text.replace("+", " ") if plus else text).decode()
    except UnicodeDecodeError:
        raise BadInput(where, text, "must be UTF-8") from None


def json_response(value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status, msgspec.json.encode(value), "application/json; charset=utf-8", headers)


def text_response(text: str, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status, text.encode(), "text/plain; charset=utf-8", headers)


def problem(error: SrtmError, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """``application/problem+json`` (``srtm.control.Problem``) for a refusal."""
    body: dict[str, object] = {"title": error.title, "status": error.http_status, "detail": str(error)}
    for name in ("field", "value", "rule"):
        if hasattr(error, name):
            body[name] = getattr(error, name)
    if isinstance(error, Unavailable) and error.retry_after_s is not None:
        headers += (("Retry-After", str(math.ceil(error.retry_after_s))),)
    return Response(error.http_status, msgspec.json.encode(body, enc_hook=repr), "application/problem+json", headers)


def bearer_token_matches(request: Request, token: str) -> bool:
    """In constant time."""
    given = request.header("authorization") or ""
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


class NoSuchMethod(BadInput):
    """The path exists, the method does not."""

    title = "method not allowed"
    http_status = 405

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__("method", method, f"must be one of {', '.join(allowed)}")
        self.allow = ", ".join(allowed)


class Unauthorized(BadInput):
    """The bearer token is missing or wrong."""

    title = "unauthorized"
    http_status = 401

    def __init__(self) -> None:
        super().__init__("Authorization", "(not shown)", "must be 'Bearer TOKEN' with the token of this service")


Handler = Callable[[Request], Awaitable[Response]]
# Takes the request, then one str for each {name} of the pattern, by keyword.
RouteHandler = Callable[..., Awaitable[Response]]


class Router:
    """Methods and path patterns (``/v1/topics/{name}/bucket``) to handlers. Raises NotFound, NoSuchMethod,
    Unauthorized: the caller's flavour of error answers them."""

    def __init__(
        self, *, token: str | None = None, open_paths: frozenset[str] = frozenset({"/ping", "/healthz"})
    ) -> None:
        self._routes: list[tuple[list[str], dict[str, RouteHandler]]] = []
        self._token = token
        self._open_paths = open_paths

    def add(self, method: str, pattern: str, handler: RouteHandler) -> None:
        parts = pattern.split("/")[1:]
        methods = next((known for path, known in self._routes if path == parts), None)
        if methods is None:
            methods = {}
            self._routes.append((parts, methods))
        methods[method] = handler

    async def __call__(self, request: Request) -> Response:
        if (
            self._token is not None
            and request.path not in self._open_paths
            and not bearer_token_matches(request, self._token)
        ):
            raise Unauthorized
        segments = request.segments
        for parts, methods in self._routes:
            names = _match(parts, segments)
            if names is not None:
                return await self._dispatch(methods, names, request)
        raise NotFound("path", request.path)

    async def _dispatch(self, methods: dict[str, RouteHandler], names: dict[str, str], request: Request) -> Response:
        allowed = sorted([*methods, "OPTIONS"])
        if request.method == "OPTIONS":
            return Response(headers=(("Allow", ", ".join(allowed)),))
        handler = methods.get(request.method)
        if handler is None:
            raise NoSuchMethod(request.method, allowed)
        return await handler(request, **names)


def _match(parts: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(parts) != len(segments):
        return None
    names = {}
    for part, segment in zip(parts, segments, strict=True):
        if part.startswith("{"):
            names[part[1:-1]] = segment
        elif part != segment:
            return None
    return names


@dataclass(eq=False)
class HttpServer:
    """``handler`` answers requests, one at a time on each connection. Times in seconds."""

    handler: Handler
    log: Log
    idle_timeout_s: float = 75.0  # longer than the 60 s after which usual clients and proxies give up by themselves
    request_timeout_s: float = 30.0  # for a head or body to come in, and for an answer to be taken
    _accepting: trio.CancelScope = field(default_factory=trio.CancelScope, init=False)
    _connections: trio.CancelScope = field(default_factory=trio.CancelScope, init=False)
    _idle: set[trio.CancelScope] = field(default_factory=set, init=False)
    stopping: bool = field(default=False, init=False)

    async def serve(self, listeners: Sequence[trio.abc.Listener[trio.abc.Stream]]) -> None:
        """Returns after ``stop``, when the requests under way are answered."""
        with self._connections:
            async with trio.open_nursery() as nursery:
                with self._accepting:
                    await trio.serve_listeners(self.serve_connection, list(listeners), handler_nursery=nursery)

    def stop(self, grace_s: float) -> None:
        """Accept nothing more, close idle connections, give requests under way ``grace_s``."""
        self.stopping = True
        self._connections.deadline = trio.current_time() + grace_s
        self._accepting.cancel()
        for scope in self._idle:
            scope.cancel()

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        """Until either side closes. A peer that goes away is no error."""
        try:
            async with stream:
                await _Connection(self, stream).run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer went away: nothing to answer, nobody to tell

    async def respond(self, request: Request) -> Response:
        """The handler's answer; its errors as answers. The one place that catches everything: a bug must cost one
        request, not the service."""
        try:
            return await self.handler(request)
        except SrtmError as error:
            return problem(error, (("Allow", error.allow),) if isinstance(error, NoSuchMethod) else ())
        except Exception as error:  # noqa: BLE001
            self.log.failure(
                "a request failed by a fault of ours", method=request.method, path=request.path, error=repr(error)
            )
            return problem(InternalError(f"{type(error).__name__}: see the log"))


class _Connection:
    def __init__(self, server: HttpServer, stream: trio.abc.Stream) -> None:
        self._server = server
        self._stream = stream
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT_BYTES)
        self._method = ""  # of the request under way
        self._declared_bytes = 0  # its Content-Length; 0 where it has none

    async def run(self) -> None:
        while True:
            head = await self._next_head()
            if head is None:
                return
            request = self._request(head)
            response = await self._server.respond(request)
            reusable = await self._drop_rest_of_body()
            await self._send(response, close=not reusable)
            if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                await self._linger()
                return
            self._h11.start_next_cycle()

    async def _next_head(self) -> h11.Request | None:
        """None: the connection is over (closed, idle for too long, stopping, or refused and answered)."""
        if self._server.stopping:
            return None
        try:
            with trio.move_on_after(self._server.idle_timeout_s) as scope:
                self._server._idle.add(scope)
                try:
                    return await self._read_head(scope)
                finally:
                    self._server._idle.discard(scope)
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint, str(error))
            return None
        if self._h11.trailing_data[0]:
            await self._refuse(408, "the request did not come in time")
        return None

    async def _read_head(self, scope: trio.CancelScope) -> h11.Request | None:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                return event
            if isinstance(event, h11.ConnectionClosed):
                return None
            begun = self._h11.trailing_data[0]
            if b"\n" in begun and not _REQUEST_LINE.fullmatch(begun.split(b"\n", 1)[0]):
                raise h11.RemoteProtocolError("this is not HTTP", 400)
            if begun:
                scope.deadline = min(scope.deadline, trio.current_time() + self._server.request_timeout_s)
            self._h11.receive_data(bytes(await self._stream.receive_some(65536)))

    def _request(self, head: h11.Request) -> Request:
        path, _, query = head.target.decode("latin-1").partition("?")
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        self._method = head.method.decode("ascii")
        self._declared_bytes = next((int(value) for name, value in headers if name == "content-length"), 0)
        return Request(self._method, path, query, headers, self._read_body)

    async def _read_body(self, limit_bytes: int) -> bytes:
        if self._declared_bytes > limit_bytes:
            raise BodyTooLarge(limit_bytes)
        body = bytearray()
        with trio.move_on_after(self._server.request_timeout_s):
            while (part := await self._body_part()) is not None:
                body += part
                if len(body) > limit_bytes:
                    raise BodyTooLarge(limit_bytes)
            return bytes(body)
        raise BadInput("body", f"{len(body)} bytes", f"must come within {self._server.request_timeout_s:g} s")

    async def _body_part(self) -> bytes | None:
        """None: the end. Raises BadInput."""
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise BadInput("body", "(not shown)", f"must be well-formed: {error}") from None
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if event is not h11.NEED_DATA:
                return None
            if self._h11.they_are_waiting_for_100_continue:
                go_on = self._h11.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                await self._stream.send_all(go_on or b"")
            self._h11.receive_data(bytes(await self._stream.receive_some(65536)))

    async def _drop_rest_of_body(self) -> bool:
        """True if the request was read to its end, so that another may follow."""
        if self._h11.their_state is h11.DONE:
            return True
        if self._h11.they_are_waiting_for_100_continue or self._h11.their_state is not h11.SEND_BODY:
            return False
        try:
            await self._read_body(_UNREAD_LIMIT_BYTES)
        except BadInput:
            return False
        return True

    async def _refuse(self, status: int, reason: str) -> None:
        error = BadInput("request", "(not shown)", reason)
        error.http_status = status
        await self._send(problem(error), close=True)
        await self._linger()

    async def _send(self, response: Response, *, close: bool) -> None:
        headers = [("Content-Length", str(len(response.body))), ("Date", _http_date()), *response.headers]
        if response.content_type:
            headers.append(("Content-Type", response.content_type))
        if close or self._server.stopping:
            headers.append(("Connection", "close"))
        out = self._encode(response, headers)
        with trio.move_on_after(self._server.request_timeout_s) as scope:
            await self._stream.send_all(out)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the peer does not take its answer")

    def _encode(self, response: Response, headers: list[tuple[str, str]]) -> bytes:
        reason = HTTPStatus(response.status).phrase
        out = self._h11.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b""
        if self._method != "HEAD":
            out += self._h11.send(h11.Data(data=response.body)) or b""
        return out + (self._h11.send(h11.EndOfMessage()) or b"")

    async def _linger(self) -> None:
        """Half-close and read on for a moment: a close with unread bytes would reset the connection before the peer
        has read the answer."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            with trio.move_on_after(1.0):
                await self._stream.send_eof()
                while await self._stream.receive_some(65536):
                    pass


def _http_date() -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
