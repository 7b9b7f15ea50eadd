"""What HTTP reaches: the application of whoever this distributor is just now, leader or standby.

A leader's answer goes out only while its lead is sure: asked at the moment at which the answer begins, whatever was
sure when the request came. When the lead is over, requests under way (long polls) are answered at once: ask the leader.
An answer that has begun is ended: a client can do nothing with half of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srtm.control import Problem
from srtm.errors import NotLeader


class Front:
    """An ASGI application. Shows ``standby`` while nothing leads."""

    def __init__(self, standby: ASGIApp) -> None:
        self._standby = standby
        self._leader: _Leader | None = None

    @contextmanager
    def leading(self, app: ASGIApp, is_sure: Callable[[], bool]) -> Iterator[None]:
        """Show ``app`` until the block ends. ``is_sure``: whether what it says may still be said."""
        leader = self._leader = _Leader(app, is_sure)
        try:
            yield
        finally:
            self._leader = None
            leader.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif self._leader is not None:
            await self._leader(scope, receive, send)
        else:
            await self._standby(scope, receive, send)


class _Leader:
    def __init__(self, app: ASGIApp, is_sure: Callable[[], bool]) -> None:
        self._app = app
        self._is_sure = is_sure
        self._under_way: dict[_Answer, trio.CancelScope] = {}

    def end(self) -> None:
        for answer, request in self._under_way.items():
            if not answer.begun:
                request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send, self._is_sure)
        with trio.CancelScope() as request:
            self._under_way[answer] = request
            try:
                await self._app(scope, receive, answer.send)
            finally:
                del self._under_way[answer]
        if answer.is_late or (request.cancelled_caught and not answer.begun):
            await answer.refuse()


class _Answer:
    """One answer on its way out. ``is_late``: it was to begin when the lead was not sure any more, and a refusal is to
    take its place."""

    def __init__(self, send: Send, is_sure: Callable[[], bool]) -> None:
        self.begun = False
        self.is_late = False
        self._send = send
        self._is_sure = is_sure

    async def send(self, message: Message) -> None:
        if not self.begun and not self._is_sure():
            self.is_late = True
        if not self.is_late:
            self.begun = True
            await self._send(message)

    async def refuse(self) -> None:
        error = NotLeader(None)
        problem = Problem(title=error.title, status=error.http_status, detail=str(error))
        headers = [(b"content-type", b"application/problem+json")]
        await self._send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": msgspec.json.encode(problem)})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing starts or ends with the server: applications come and go while it runs."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
