"""Serves an ASGI application with hypercorn, also behind a front, which answers some requests of each connection.

hypercorn's own ``serve`` gives no connection away, and bounds none. So this listens in its place, and runs its server
of one connection for what a front leaves. The applications have nothing to do at start and stop (ASGI's lifespan).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, cast

import msgspec
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from srtm.control import Problem
from srtm.log import Log
from srtm.web.listener_places import Places, host_of

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Behind = Callable[[bytes], Awaitable[None]]  # takes over a connection for good, with the bytes that begin it


_REFUSAL_S = 1.0


class Front(Protocol):
    """What gets each connection first."""

    async def serve(self, stream: Stream, behind: Behind) -> None:
        """Answer a connection until it ends, or until ``behind`` takes it over. The stream is closed afterwards."""

    def stop(self) -> None:
        """Let go of connections that wait for a request. Those under way may end."""


async def serve_fronted(
    app: ASGIApp,
    config: Config,
    front: Front | None,
    stop: trio.Event,
    log: Log,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve at ``config.bind`` until ``stop``, then for ``config.graceful_timeout`` at most."""
    context = WorkerContext(None)
    places = Places.by_descriptors()
    wrapped = wrap_app(cast(Any, app), config.wsgi_max_body_size, "asgi")

    async def connected(stream: Stream) -> None:
        async def behind(received: bytes) -> None:
            resumed = cast(Any, _Resumed(stream, received))
            await TCPServer(wrapped, config, context, ConnectionState({}), resumed).run()

        try:
            with places.taken(host_of(stream)) as refusal:
                if refusal is not None:
                    await _refuse(stream, refusal)
                elif await _is_secured(stream, config.ssl_handshake_timeout):
                    await (behind(b"") if front is None else front.serve(stream, behind))
        except Exception as error:  # noqa: BLE001 - a bug must cost one connection, not the service
            log.failure("a connection failed because of a bug", listener="http_address", error=repr(error))

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            serve = partial(trio.serve_listeners, connected, _listeners(config), handler_nursery=connections)
            accepting.start_soon(serve)
            task_status.started([])
            await stop.wait()
            accepting.cancel_scope.cancel()
        if front is not None:
            front.stop()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + config.graceful_timeout


def _listeners(config: Config) -> list[Any]:
    sockets, tls = config.create_sockets(), config.create_ssl_context()
    listeners = []
    for each in (*sockets.secure_sockets, *sockets.insecure_sockets):
        each.listen(config.backlog)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(each))
        listeners.append(listener if tls is None else trio.SSLListener(listener, tls, https_compatible=True))
    return listeners


async def _refuse(stream: Stream, why: str) -> None:
    """Say why there is no place; within TLS a handshake would cost more than it is worth."""
    problem = Problem(title="unavailable", status=503, detail=f"{why}: as many as there are descriptors")
    content = msgspec.json.encode(problem)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
        f"Retry-After: 1\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    try:
        if isinstance(stream, trio.SocketStream):
            with trio.move_on_after(_REFUSAL_S):
                await stream.send_all(head.encode() + content)
    except trio.BrokenResourceError:
        return
    finally:
        await trio.aclose_forcefully(stream)


async def _is_secured(stream: Stream, within_s: float) -> bool:
    """Shake hands where that is needed. False: it failed."""
    if isinstance(stream, trio.SocketStream):
        return True
    with trio.move_on_after(within_s) as handshake:
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError:
            return False
    return not handshake.cancelled_caught


class _Resumed:
    """A stream of which some bytes were received before: it gives these first."""

    def __init__(self, stream: Stream, received: bytes) -> None:
        self._stream = stream
        self._received = received

    async def receive_some(self, most: int | None = None) -> bytes:
        """Return the next bytes, at least one; b"" at the end."""
        if self._received:
            first, self._received = self._received[:most], self._received[len(self._received[:most]) :]
            return first
        return bytes(await self._stream.receive_some(most))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
