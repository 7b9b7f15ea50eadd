"""What a session is, and what it gets."""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import trio

from tests.interop.drop_in import web
from tests.interop.drop_in.auth_server import Asked
from tests.interop.drop_in.client import Client, sized
from tests.interop.drop_in.node import Node
from tests.interop.drop_in.transcript import Transcript

MAGIC = b"  V2"
_SETTLED_S = 0.3
_LAST = b"PUB answers_still\n" + sized(b"x")


@dataclass
class Play:
    """One session against one broker."""

    node: Node
    transcript: Transcript
    auth: Asked

    async def connect(self, label: str, magic: bytes = MAGIC, *, heartbeats: bool = False) -> Client:
        host, _, port = self.node.tcp_address.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        self.transcript.exchanges += 1
        client = Client(stream, self.transcript, label, heartbeats)
        if magic:
            await client.send(magic)
        return client

    async def once(self, label: str, data: bytes, magic: bytes = MAGIC, *, last: bytes = _LAST) -> None:
        """All of it at once on a connection of its own, and all that comes back. ``last`` is sent behind it: answered
        where the connection stays."""
        client = await self.connect(label, magic)
        await client.send(data + last)
        await client.finish()
        await client.abort()

    async def each(self, cases: Mapping[str, bytes], before: bytes = b"") -> None:
        for label, data in cases.items():
            await self.once(label, before + data)

    async def subscriber(
        self, label: str, topic: str, channel: str = "ch", ready: int = 0, **identify: object
    ) -> Client:
        client = await self.connect(label)
        if identify:
            await client.say(identification(**identify))
        await client.say(f"SUB {topic} {channel}\n".encode())
        if ready:
            await client.send(b"RDY %d\n" % ready)
        return client

    async def publish(self, topic: str, *bodies: bytes) -> None:
        for body in bodies:
            await self.http("publish", "POST", f"/pub?topic={topic}", body)

    async def http(
        self, label: str, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        return await self.raw_http(label, web.request_bytes(method, target, body, headers or {}))

    async def https(self, label: str, method: str, target: str, context: ssl.SSLContext) -> None:
        self.transcript.exchanges += 1
        request = web.request_bytes(method, target, b"", {})
        web.note_answer(self.transcript, label, await web.exchange(self.node.https_address, request, context))

    async def raw_http(self, label: str, request: bytes) -> bytes:
        self.transcript.exchanges += 1
        answer = await web.exchange(self.node.http_address, request)
        return web.note_answer(self.transcript, label, answer)

    async def config(self, key: str) -> None:
        """An option's value; the broker's own ports, by whatever key, are ``PORT``."""
        self.transcript.exchanges += 1
        answer = await web.exchange(self.node.http_address, web.request_bytes("GET", f"/config/{key}", b"", {}))
        for address in (self.node.tcp_address, self.node.http_address):
            answer = answer.replace(address.rpartition(":")[2].encode(), b"PORT")
        web.note_answer(self.transcript, key, answer)

    async def statuses(self, request: bytes) -> str:
        """Of all answers on one connection."""
        self.transcript.exchanges += 1
        return web.statuses(await web.exchange(self.node.http_address, request))

    async def text_stats(self, label: str, query: str = "") -> None:
        self.transcript.exchanges += 1
        request = web.request_bytes("GET", f"/stats?{query}", b"", {})
        answer = await web.exchange(self.node.http_address, request)
        head, _, text = answer.partition(b"\r\n\r\n")
        self.transcript.note(label, head.split(b"\r\n")[0].decode())
        for number, line in enumerate(web.text_lines(text.decode())):
            self.transcript.note(f"{label} line {number}", line)

    async def settle(self) -> None:
        """nsqd moves messages on and removes clients after its answers, and says nothing when it has."""
        await trio.sleep(_SETTLED_S)

    async def stats(self, label: str, topic: str) -> None:
        """Of this topic; producers may be another session's."""
        await self.settle()
        await self.http(label, "GET", f"/stats?format=json&topic={topic}&include_mem=false")
        self.transcript.forget(f"{label} body producers")


def identification(**settings: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(settings).encode())


Body = Callable[[Play], Awaitable[None]]


@dataclass(frozen=True)
class Session:
    """``alone``: with a broker that nobody else uses. In ``flags``, AUTH stands for the auth server's address."""

    name: str
    play: Body
    flags: tuple[str, ...] = ()
    alone: bool = False


@dataclass
class Sessions:
    """Those of a module, in order."""

    all: list[Session] = field(default_factory=list)

    def add(self, name: str, *flags: str, alone: bool = False) -> Callable[[Body], Body]:
        def keep(body: Body) -> Body:
            self.all.append(Session(name, body, flags, alone))
            return body

        return keep
