"""Serves Envoy's rate limit service and gRPC's health service: the sockets around ``limiting.envoy``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from limiting.envoy.grpc_session import Call, Code, GrpcSession
from limiting.envoy.health import CHECK, WATCH, asked_service, health
from limiting.envoy.rate_limits import RateLimitRequest, RateLimitResponse, read_request, write_response
from limiting.listeners import receive_first
from srtm.errors import BadInput, Forbidden, NotFound, PeerError, SrtmError, Unauthorized, Unavailable
from srtm.net.tokens import Scope, Tokens

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
SHOULD_RATE_LIMIT = f"/{SERVICE}/ShouldRateLimit"
_READ_BYTES = 4 << 10  # some 40 calls: others have their turn after some milliseconds
_GOODBYE_S = 0.1
_SCOPES: tuple[Scope, ...] = ("client",)
# The first that fits: an Unauthorized is a BadInput too.
_CODES: tuple[tuple[type[SrtmError], Code], ...] = (
    (Unauthorized, Code.UNAUTHENTICATED),
    (Forbidden, Code.PERMISSION_DENIED),
    (BadInput, Code.INVALID_ARGUMENT),
    (PeerError, Code.INVALID_ARGUMENT),
    (NotFound, Code.NOT_FOUND),
    (Unavailable, Code.UNAVAILABLE),
)

Decide = Callable[[RateLimitRequest], Awaitable[RateLimitResponse]]


class GrpcServer:
    """Answers connections of gRPC clients by ``decide``. ``may_wait``: whether that may wait for others."""

    def __init__(self, decide: Decide, may_wait: Callable[[], bool], tokens: Tokens | None) -> None:
        self._decide = decide
        self._may_wait = may_wait
        self._tokens = tokens

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one connection until it ends."""
        connection = _Connection(stream)
        try:
            await self._answer_all(connection)
        except* trio.BrokenResourceError:
            pass  # the client went away
        finally:
            with trio.move_on_after(_GOODBYE_S, shield=True):
                await connection.end()

    async def _answer_all(self, connection: _Connection) -> None:
        session = connection.session
        async with trio.open_nursery() as nursery:
            await connection.flush()
            received = await receive_first(connection.stream, _READ_BYTES)
            while received:
                for call in session.feed(received):
                    if self._may_wait():
                        nursery.start_soon(self._answer_later, connection, call)
                    else:
                        await self._answer(session, call)
                await connection.flush()
                received = b"" if session.is_closed else bytes(await connection.stream.receive_some(_READ_BYTES))
            nursery.cancel_scope.cancel()

    async def _answer_later(self, connection: _Connection, call: Call) -> None:
        await self._answer(connection.session, call)
        await connection.flush()

    async def _answer(self, session: GrpcSession, call: Call) -> None:
        try:
            if call.method == SHOULD_RATE_LIMIT:
                if self._tokens is not None:
                    self._tokens.check(call.authorization, _SCOPES)
                session.answer(call.stream, write_response(await self._decide(read_request(call.message))))
            elif call.method in (CHECK, WATCH):
                self._tell_health(session, call)
            else:
                session.refuse(call.stream, Code.UNIMPLEMENTED, f"{call.method} is not served here")
        except SrtmError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
            session.refuse(call.stream, code, str(error))

    def _tell_health(self, session: GrpcSession, call: Call) -> None:
        """What is asked for serves as long as there is a connection, so a watch has no other news."""
        service = asked_service(call.message)
        is_known = service in ("", SERVICE)
        if call.method == CHECK and not is_known:
            raise NotFound("service", service)
        session.answer(call.stream, health(is_known), is_last=call.method == CHECK)


class _Connection:
    """The stream of a session. Several tasks may send what the session has to say."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.session = GrpcSession()
        self._sending = trio.Lock()

    async def flush(self) -> None:
        """Send what there is to send. Raises trio.BrokenResourceError."""
        async with self._sending:
            data = self.session.outgoing()
            if data:
                await self.stream.send_all(data)

    async def end(self) -> None:
        """Say goodbye, if somebody is there, and close."""
        self.session.close()
        try:
            await self.flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass
        finally:
            await trio.aclose_forcefully(self.stream)
