"""A broker that delivers to its subscribers what publishers send it, on a port of loopback, in a thread of its own.

For programs without an event loop, which cannot be given streams in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.from_thread import start_blocking_portal

from tests.support.scripted_broker import Session


class EchoBroker:
    """``answers``: the FIN, REQ and TOUCH commands that came, in order."""

    def __init__(self) -> None:
        self.address = ""
        self.answers: list[bytes] = []
        self._subscribers: list[Session] = []
        self._kept: dict[bytes, bytes] = {}  # bodies not finished yet, by message id

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.address = f"127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            task_status.started()
            await listener.serve(self._talk)

    async def _talk(self, stream: SocketStream) -> None:
        async with stream:
            session = Session(self.address, stream)
            try:
                await session.greet()
                while True:
                    await self._obey(session, *await session.command())
            except (AssertionError, anyio.BrokenResourceError):  # the client has closed
                if session in self._subscribers:
                    self._subscribers.remove(session)

    async def _obey(self, session: Session, line: bytes, body: bytes) -> None:
        match line.split(b" "):
            case [b"PUB", _]:
                await session.respond(b"OK wait_ns=0 fill=1")
                await self._keep(body)
            case [b"SUB", _, _]:
                await session.respond(b"OK")
                self._subscribers.append(session)
            case [b"RDY", _]:
                for message_id, kept in list(self._kept.items()):
                    await session.deliver(message_id, kept)
            case [b"FIN", message_id]:
                self.answers.append(line)
                self._kept.pop(message_id, None)
            case [b"REQ" | b"TOUCH", *_]:
                self.answers.append(line)
            case [b"CLS"]:
                await session.respond(b"CLOSE_WAIT")

    async def _keep(self, body: bytes) -> None:
        message_id = f"{len(self._kept):016}".encode()
        self._kept[message_id] = body
        for subscriber in self._subscribers:
            await subscriber.deliver(message_id, body)


@contextmanager
def echo_broker() -> Iterator[EchoBroker]:
    broker = EchoBroker()
    with start_blocking_portal() as portal:
        future, _ = portal.start_task(broker.serve)
        try:
            yield broker
        finally:
            future.cancel()
