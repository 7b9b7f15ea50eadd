"""The broker's side of memory streams, played by a test: it sees every command and decides every answer."""

from __future__ import annotations

import json
import math
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from tests.support.both_loops import settled
from tests.support.memory_streams import memory_stream_pair

WITH_BODY = {b"IDENTIFY", b"AUTH", b"PUB", b"MPUB", b"DPUB"}


@dataclass
class Session:
    """One connection, as the broker has it."""

    address: str
    stream: ByteStream
    buffer: bytearray = field(default_factory=bytearray)

    async def command(self) -> tuple[bytes, bytes]:
        """(line, body) of the next command."""
        line = await self._until_newline()
        if line.split(b" ")[0] not in WITH_BODY:
            return line, b""
        (size,) = struct.unpack(">i", await self._exactly(4))
        return line, await self._exactly(size)

    async def respond(self, data: bytes) -> None:
        await self._frame(0, data)

    async def refuse(self, text: bytes) -> None:
        await self._frame(1, text)

    async def deliver(self, message_id: bytes, body: bytes, attempts: int = 1) -> None:
        await self._frame(2, struct.pack(">qH16s", 1, attempts, message_id) + body)

    async def greet(self, aware: bool = True, *, tells_left: bool = False) -> dict[str, Any]:
        """Take the introduction and answer it; returns what the client said."""
        srtm = {"srtm": {"v": 1} | ({"left": True} if tells_left else {})} if aware else {}
        assert await self._exactly(4) == b"  V2"
        line, body = await self.command()
        assert line == b"IDENTIFY"
        await self.respond(json.dumps({"max_rdy_count": 2500} | srtm).encode())
        said: dict[str, Any] = json.loads(body)
        return said

    async def ended(self) -> bool:
        """True if the client has closed and nothing is left to read."""
        try:
            await self.stream.receive(1)
        except anyio.EndOfStream:
            return not self.buffer
        return False

    async def hung_up(self) -> None:
        """Until the client has closed, whatever it has said before."""
        while True:
            try:
                await self.stream.receive()
            except anyio.EndOfStream:
                return

    async def _frame(self, kind: int, data: bytes) -> None:
        await self.stream.send(struct.pack(">ii", len(data) + 4, kind) + data)

    async def _until_newline(self) -> bytes:
        while b"\n" not in self.buffer:
            await self._more()
        line, _, rest = bytes(self.buffer).partition(b"\n")
        self.buffer[:] = rest
        return line

    async def _exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            await self._more()
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    async def _more(self) -> None:
        try:
            self.buffer += await self.stream.receive(4096)
        except anyio.EndOfStream:
            raise AssertionError("the client closed the connection") from None


class Network:
    """``connect`` for clients; ``accepted`` for the test. Addresses in ``refusing`` cannot be reached.

    ``room``: unread sends that a connection holds before its sender waits.
    """

    def __init__(self, room: float = math.inf) -> None:
        self._room = room
        self.refusing: set[str] = set()
        self.dialled: list[str] = []
        self._accepted: deque[Session] = deque()
        self._news = anyio.Event()

    async def connect(self, address: str) -> ByteStream:
        await anyio.lowlevel.checkpoint()
        self.dialled.append(address)
        if address in self.refusing:
            raise OSError("connection refused")
        ours, theirs = memory_stream_pair(self._room)
        self._accepted.append(Session(address, theirs))
        self._news.set()
        self._news = anyio.Event()
        return ours

    async def dialled_by(self) -> Session:
        """The next connection, nothing said yet."""
        while not self._accepted:
            await self._news.wait()
        return self._accepted.popleft()

    async def accepted(self, aware: bool = True, *, tells_left: bool = False) -> Session:
        """The next connection, introduced: the client knows."""
        session = await self.dialled_by()
        await session.greet(aware, tells_left=tells_left)
        await settled()
        return session
