"""Middleware for ASGI applications (FastAPI, Starlette, Litestar, Django, Quart) on asyncio or trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio

from srtm.errors import BadInput, SrtmError, Unavailable
from srtm.limiting.answers import Answer, Fields, Limits, awaited
from srtm.limiting.problem import MEDIA_TYPE, error_problem
from srtm.limiting.remote import RemoteLimits
from srtm.log import Log

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ANSWER = "srtm.limit"  # of a scope: its Answer, for ``correct``
_RELEASE_S = 1.0  # a release that is lost ends when the request expires
_REFUSED_WEBSOCKET = "websocket.http.response"


def client_address(scope: Scope) -> str:
    """The subject ``ip:ADDRESS`` of the connection's other end. Behind a proxy that is the proxy."""
    client = scope.get("client")
    return f"ip:{client[0] if client else 'unknown'}"


class LimitMiddleware:
    """Checks each request and WebSocket: 429 for one that is refused, headers for one that is not.

    ``subject``: whom a request is charged to; None: nobody, it passes. ``cost``: tokens of a request. 400 for a subject
    or cost that cannot be, 503 where the limits cannot be asked and do not fail open. A subject without a contract
    raises NotFound: nothing is left unlimited silently.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        namespace: str,
        *,
        subject: Callable[[Scope], str | None] = client_address,
        cost: int | Callable[[Scope], int] = 1,
    ) -> None:
        self._app = app
        self._limits = limits
        self._namespace = namespace
        self._subject = subject
        self._cost = cost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                if isinstance(self._limits, RemoteLimits):
                    await self._limits.aclose()
            return
        subject = self._subject(scope) if scope["type"] in ("http", "websocket") else None
        if subject is None:
            await self._app(scope, receive, send)
            return
        cost = self._cost if isinstance(self._cost, int) else self._cost(scope)
        try:
            answer = await awaited(self._limits.check(self._namespace, subject, cost))
        except (BadInput, Unavailable) as error:
            later: Fields = [("Retry-After", "1")] if isinstance(error, Unavailable) else []
            await _refuse(scope, receive, send, error.http_status, later, error_problem(error))
            return
        if not answer.allowed:
            await _refuse(scope, receive, send, 429, answer.headers, answer.problem)
            return
        scope[ANSWER] = answer
        try:
            if answer.wait_s:
                await anyio.sleep(answer.wait_s)
            await self._app(scope, receive, _with_headers(send, answer))
        finally:
            if answer.is_open:
                await self._release(answer)

    async def _release(self, answer: Answer) -> None:
        """Also when the request is cancelled, which a client does by going away."""
        with anyio.move_on_after(_RELEASE_S, shield=True):
            try:
                await awaited(self._limits.release(answer.grant or b""))
            except SrtmError as error:
                Log("limits").warning("not_released", why=error)


def _with_headers(send: Send, answer: Answer) -> Send:
    raw = _raw(answer.headers)

    async def sending(message: Message) -> None:
        if raw and message["type"] in ("http.response.start", "websocket.accept"):
            message = {**message, "headers": [*message.get("headers", ()), *raw]}
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, headers: Fields, body: bytes) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if _REFUSED_WEBSOCKET not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": "quota exceeded"})  # becomes 403
            return
        kind = _REFUSED_WEBSOCKET
    named = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), *headers]
    await send({"type": f"{kind}.start", "status": status, "headers": _raw(named)})
    await send({"type": f"{kind}.body", "body": body})


def _raw(headers: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers]
