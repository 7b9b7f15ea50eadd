"""A TCP relay on loopback between two nodes, which can be cut and given a delay."""

from __future__ import annotations

from collections.abc import Callable

import trio

_READ_BYTES = 64 << 10
_FAILURES = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Relay:
    """Passes connections on to ``port``. ``delay_s``: of each piece, one way."""

    def __init__(self, port: int, delay_s: float = 0.0) -> None:
        self._port = port
        self._delay_s = delay_s
        self._connections: set[trio.CancelScope] = set()
        self._is_cut = False

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._is_cut = True
        for scope in self._connections:
            scope.cancel()

    def heal(self) -> None:
        """Pass connections on again."""
        self._is_cut = False

    async def answer(self, stream: trio.SocketStream) -> None:
        """Pass one connection on, until it ends or is cut."""
        async with stream:
            if self._is_cut:
                return
            try:
                onward = await trio.open_tcp_stream("127.0.0.1", self._port)
            except OSError:
                return
            with trio.CancelScope() as scope:
                self._connections.add(scope)
                async with onward, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pass, stream, onward, scope.cancel)
                    nursery.start_soon(self._pass, onward, stream, scope.cancel)
            self._connections.discard(scope)

    async def _pass(self, source: trio.SocketStream, sink: trio.SocketStream, end: Callable[[], None]) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](10_000)

        async def read() -> None:
            async with send:
                try:
                    while data := bytes(await source.receive_some(_READ_BYTES)):
                        await send.send((trio.current_time() + self._delay_s, data))
                except _FAILURES:
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            async for due, data in receive:
                await trio.sleep_until(due)
                try:
                    await sink.send_all(data)
                except _FAILURES:
                    break
            end()
