"""Serves HTTP checks before FastAPI. The core reads and writes the bytes; this owns the connections.

Where every contract is ``local`` the core decides checks of programs and gateways from their bytes. Other requests on
the routes of clients are answered by the application, on the same connection: what is refused as bad input, what nodes
or a store decide, watched subjects, plans, corrections. A request of another route, or one whose framing is unusual
(chunks, a large body, ``Expect``), makes the connection hypercorn's, for the rest of its life.
"""

from __future__ import annotations

import secrets

import trio
from starlette.types import ASGIApp

from limiting.config import LimitConfig
from limiting.listeners import send_soon
from limiting.nodes.decisions import Decisions
from srtm._native import HttpSession, Limiter
from srtm.errors import SrtmError
from srtm.log import Log
from srtm.net.tokens import Scope
from srtm.web.fronted import Behind
from srtm.web.request_log import RequestLog
from srtm.web.whole_requests import Peers, WholeAnswer, answered

IDLE_S = 5.0  # as long as hypercorn waits for a request
_GOODBYE_S = 1.0
_READ_BYTES = 64 << 10
_MOST_BODY = 64 << 10  # of what one connection holds; larger bodies take from the budget of all
_SCOPES: tuple[Scope, ...] = ("client",)


class HttpServer:
    """A front (``srtm.web.fronted.Front``) of ``app``, which answers what the core does not."""

    def __init__(self, app: ASGIApp, decisions: Decisions, config: LimitConfig, log: Log) -> None:
        self.app = RequestLog(app, log)
        self.log = log
        self.clocks = decisions.limiter.clocks
        self.waiting: set[trio.CancelScope] = set()  # of connections without a request under way
        self.stops = False
        self._decisions = decisions
        self._config = config

    async def serve(self, stream: trio.abc.Stream, behind: Behind) -> None:
        """Answer a connection until it ends, or until ``behind`` takes it over."""
        session = self._session()
        try:
            if await _Connection(self, session, stream).run():
                await behind(session.rest)
            else:
                with trio.move_on_after(_GOODBYE_S):
                    await stream.aclose()
        except trio.BrokenResourceError:
            pass  # the client went away

    def stop(self) -> None:
        """Let go of connections that wait for a request."""
        self.stops = True
        for scope in self.waiting:
            scope.cancel()

    def _session(self) -> HttpSession:
        config = self._config
        most_body = min(_MOST_BODY, config.max_body_bytes)
        return HttpSession(secrets.token_bytes(16), config.tokens is not None, config.headers, most_body)

    @property
    def core(self) -> Limiter | None:
        """What decides checks. None: the application does; it alone logs requests."""
        is_logged = self.log.settings.lets("debug")
        return self._decisions.limiter.core if self._decisions.are_local and not is_logged else None

    def admits(self, authorization: str | None) -> bool:
        """Whether a token may check."""
        try:
            if self._config.tokens is not None:
                self._config.tokens.check(authorization, _SCOPES)
        except SrtmError:
            return False
        return True


class _Connection:
    def __init__(self, server: HttpServer, session: HttpSession, stream: trio.abc.Stream) -> None:
        self._server = server
        self._session = session
        self._stream = stream
        self._deadline = trio.current_time() + IDLE_S

    async def run(self) -> bool:
        """Answer until the connection ends (False), or another server is to go on (True)."""
        waits = "bytes"
        while waits in ("bytes", "body"):
            received = await self._receive(is_waiting=waits == "bytes")
            if not received:
                return received is None and waits == "body"  # a slow body: hypercorn has more patience
            waits = await self._answer(received)
        return waits == "server"

    async def _receive(self, is_waiting: bool) -> bytes | None:
        """What the client sends, b"" at its end. None: it is late, or the service stops."""
        if is_waiting and self._server.stops:
            return None
        waiting = self._server.waiting
        with trio.CancelScope(deadline=self._deadline) as scope:
            if is_waiting:
                waiting.add(scope)
            try:
                return bytes(await self._stream.receive_some(_READ_BYTES))
            finally:
                waiting.discard(scope)
        return None

    async def _answer(self, received: bytes) -> str:
        """Answer what can be answered, and return what the session waits for then."""
        server, session = self._server, self._session
        answers, waits = session.feed(received, server.core, server.clocks())
        while True:
            if answers:
                await send_soon(self._stream, answers)
                self._deadline = trio.current_time() + IDLE_S
            if waits == "answer":
                answers, waits = session.answer(*await self._asked(), server.clocks())
                continue
            if waits == "admission":
                session.admit(server.admits(session.authorization))
            elif waits != "room":
                return waits
            answers, waits = session.feed(b"", server.core, server.clocks())

    async def _asked(self) -> WholeAnswer:
        assert self._session.asked is not None
        return await answered(self._server.app, *self._session.asked, self._peers(), self._server.log)

    def _peers(self) -> Peers:
        stream = self._stream
        is_tls = isinstance(stream, trio.SSLStream)
        transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        if not isinstance(transport, trio.SocketStream):
            return Peers(None, None, "http")
        try:
            client, server = transport.socket.getpeername()[:2], transport.socket.getsockname()[:2]
        except OSError as error:
            raise trio.BrokenResourceError from error
        return Peers(client, server, "https" if is_tls else "http")
