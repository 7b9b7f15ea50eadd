"""HTTP requests that the engine forwards to Python: each becomes a task that calls the handler and returns its answer.

The engine speaks the protocol (``broker/engine/src/http``). It forwards a connection's next request once this one is
answered.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from broker.runtime.wakeup import Wakeup
from srtm.log import Log
from srtm.net.http_server import BodyTooLarge, Handler, Request, Response, respond

if TYPE_CHECKING:
    from srtm._native import Engine

_MAX_HANDLED = 16  # at one time: a snapshot takes the engine's time, more would wait for each other
_GRACE_S = 1.0


class ForwardedRequests:
    """``arrived`` is set whenever the engine may have requests."""

    def __init__(self, engine: Engine, handler: Handler, log: Log) -> None:
        self._engine = engine
        self._handler = handler
        self._log = log
        self._limit = trio.CapacityLimiter(_MAX_HANDLED)
        self._stopping = False
        self.arrived = Wakeup()

    async def serve(self) -> None:
        """Until cancelled. Then no request is begun, and those under way get a second to end."""
        under_way = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_all, under_way)
            try:
                self._engine.open_http()
                await trio.sleep_forever()
            finally:
                self._stop(under_way)

    def _stop(self, under_way: trio.CancelScope) -> None:
        under_way.deadline = trio.current_time() + _GRACE_S
        self._stopping = True
        self.arrived.set()
        try:
            self._engine.close_http()
        except RuntimeError:
            under_way.cancel()  # the engine has ended: no client waits

    async def _answer_all(self, under_way: trio.CancelScope) -> None:
        with under_way:
            async with trio.open_nursery() as nursery:
                while not self._stopping:
                    await self.arrived.wait()
                    for number, method, target, headers, body, source in self._engine.drain_requests():
                        nursery.start_soon(self._answer, number, request(method, target, headers, body, source))

    async def _answer(self, number: int, asked: Request) -> None:
        async with self._limit:
            answer = await respond(self._handler, asked, self._log)
        with suppress(RuntimeError):  # the engine has ended, and the connection with it
            self._engine.respond(number, answer.status, answer_headers(answer), answer.body)


def request(method: str, target: str, headers: list[tuple[str, str]], body: bytes, source: str = "") -> Request:
    async def read_body(limit_bytes: int) -> bytes:
        if len(body) > limit_bytes:
            raise BodyTooLarge(limit_bytes)
        return body

    path, _, query = target.partition("?")
    return Request(method, path, query, tuple(headers), read_body, source)


def answer_headers(answer: Response) -> list[tuple[str, str]]:
    content_type = [("Content-Type", answer.content_type)] if answer.content_type else []
    return [*content_type, *answer.headers]
