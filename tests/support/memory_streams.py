"""Byte streams in memory, under every event loop. Nothing need be closed."""

from __future__ import annotations

import math
from collections import deque

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream


class _Way:
    """One direction of a connection; ``room``: unread sends that it holds before a sender waits."""

    def __init__(self, room: float) -> None:
        self.room = room
        self.unread: deque[bytes] = deque()
        self.has_sender = self.has_receiver = True
        self._changed: anyio.Event | None = None

    def change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait(self) -> None:
        """Until anything changes."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()


class MemoryStream(ByteStream):
    """One end of a connection."""

    def __init__(self, out: _Way, into: _Way) -> None:
        self._out, self._into = out, into

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        while self._out.has_sender and self._out.has_receiver and len(self._out.unread) >= self._out.room:
            await self._out.wait()
        if not self._out.has_sender:
            raise anyio.ClosedResourceError
        if not self._out.has_receiver:
            raise anyio.BrokenResourceError
        self._out.unread.append(item)
        self._out.change()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while self._into.has_receiver and self._into.has_sender and not self._into.unread:
            await self._into.wait()
        if not self._into.has_receiver:
            raise anyio.ClosedResourceError
        if not self._into.unread:
            raise anyio.EndOfStream
        data = self._into.unread.popleft()
        if len(data) > max_bytes:
            self._into.unread.appendleft(data[max_bytes:])
        self._into.change()
        return data[:max_bytes]

    async def send_eof(self) -> None:
        self._out.has_sender = False
        self._out.change()

    async def aclose(self) -> None:
        self._out.has_sender = self._into.has_receiver = False
        self._out.change()
        self._into.change()
        await anyio.lowlevel.checkpoint()


def memory_stream_pair(room: float = math.inf) -> tuple[MemoryStream, MemoryStream]:
    """Both ends. ``room``: unread sends that each direction holds before a sender waits."""
    there, back = _Way(room), _Way(room)
    return MemoryStream(there, back), MemoryStream(back, there)
