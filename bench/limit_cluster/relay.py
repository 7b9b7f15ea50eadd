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
        self._connections: dict[trio.CancelScope, bytes] = {}  # with the first bytes of each
        self._cut: set[bytes] = set()

    def cut(self, text: bytes = b"") -> None:
        """End all connections, and refuse new ones; with ``text``: those whose first piece has it."""
        self._cut.add(text)
        for scope, first in self._connections.items():
            if self._is_cut(first):
                scope.cancel()

    def heal(self) -> None:
        """Pass connections on again."""
        self._cut.clear()

    def _is_cut(self, first: bytes) -> bool:
        return any(text in first for text in self._cut)

    async def answer(self, stream: trio.SocketStream) -> None:
        """Pass one connection on, until it ends or is cut."""
        async with stream:
            if b"" in self._cut:
                return
            try:
                onward = await trio.open_tcp_stream("127.0.0.1", self._port)
            except OSError:
                return
            with trio.CancelScope() as scope:
                self._connections[scope] = b""

                def note(first: bytes) -> None:
                    self._connections[scope] = first
                    if self._is_cut(first):
                        scope.cancel()

                async with onward, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pass, stream, onward, note, scope.cancel)
                    nursery.start_soon(self._pass, onward, stream, lambda _: None, scope.cancel)
            del self._connections[scope]

    async def _pass(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        note_first: Callable[[bytes], None],
        end: Callable[[], None],
    ) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](10_000)

        async def read() -> None:
            async with send:
                is_first = True
                try:
                    while data := bytes(await source.receive_some(_READ_BYTES)):
                        if is_first:
                            note_first(data)
                            is_first = False
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
