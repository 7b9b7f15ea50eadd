"""The broker's side of memory streams, played by a test: it sees every command and decides every answer."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

WITH_BODY = {b"IDENTIFY", b"PUB", b"MPUB", b"DPUB"}


@dataclass
class Session:
    """One connection, as the broker has it."""

    address: str
    stream: trio.abc.Stream
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
        return not self.buffer and not await self.stream.receive_some(1)

    async def _frame(self, kind: int, data: bytes) -> None:
        await self.stream.send_all(struct.pack(">ii", len(data) + 4, kind) + data)

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
        data = await self.stream.receive_some(4096)
        assert data, "the client closed the connection"
        self.buffer += data


class Network:
    """``connect`` for clients; ``accepted`` for the test. Addresses in ``refusing`` cannot be reached."""

    def __init__(self) -> None:
        self.refusing: set[str] = set()
        self.dialled: list[str] = []
        self._send, self._receive = trio.open_memory_channel[Session](100)

    async def connect(self, address: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.dialled.append(address)
        if address in self.refusing:
            raise OSError("connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._send.send_nowait(Session(address, theirs))
        return ours

    async def dialled_by(self) -> Session:
        """The next connection, nothing said yet."""
        return await self._receive.receive()

    async def accepted(self, aware: bool = True, *, tells_left: bool = False) -> Session:
        """The next connection, introduced."""
        session = await self.dialled_by()
        await session.greet(aware, tells_left=tells_left)
        return session
