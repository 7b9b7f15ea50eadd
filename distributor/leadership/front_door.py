"""The dispatcher of HTTP requests: to the leader's application while this distributor leads, else to the standby's.

A leader's answer is sent only while its lead is sure at the moment at which the answer begins. When the lead ends,
requests that wait (long polls) are answered at once: ask the leader. An answer that has begun is completed: a client
can do nothing with half of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srtm.control import Problem
from srtm.errors import NotLeader
from srtm.log import REQUEST_ID


class FrontDoor:
    """An ASGI application: ``standby``'s, except within ``show_leader``."""

    def __init__(self, standby: ASGIApp) -> None:
        self._standby = standby
        self._leader: _Leader | None = None

    @contextmanager
    def show_leader(self, app: ASGIApp, is_sure: Callable[[], bool]) -> Iterator[None]:
        """Dispatch to ``app`` until the block ends. ``is_sure``: whether its answers may still be sent."""
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
    """The leader's application, and its requests that wait."""

    def __init__(self, app: ASGIApp, is_sure: Callable[[], bool]) -> None:
        self._app = app
        self._is_sure = is_sure
        self._requests: dict[_Answer, trio.CancelScope] = {}

    def end(self) -> None:
        """End the requests that have no answer yet."""
        for answer, request in self._requests.items():
            if not answer.begun:
                request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send, self._is_sure)
        with trio.CancelScope() as request:
            self._requests[answer] = request
            try:
                await self._app(scope, receive, answer.send)
            finally:
                del self._requests[answer]
        if answer.is_late or (request.cancelled_caught and not answer.begun):
            await answer.refuse()


class _Answer:
    """One answer. ``is_late``: it was to begin after the lead had ended, so a refusal takes its place."""

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
        problem = Problem(title=error.title, status=error.http_status, detail=str(error), request_id=REQUEST_ID.get())
        headers = [(b"content-type", b"application/problem+json")]
        await self._send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": msgspec.json.encode(problem)})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Answer the server: applications come and go while it runs, so nothing starts or stops here."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
