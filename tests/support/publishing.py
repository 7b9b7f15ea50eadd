"""A ``srtm.Publisher`` between a distributor and brokers that the test plays, in simulated time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
from anyio.abc import TaskGroup

from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.errors import Closed, PublishRefused
from srtm.protocol import Receipt
from tests.support.both_loops import settled
from tests.support.scripted_broker import Network, Session

HERE, THERE = "127.0.0.1:1001", "127.0.0.1:1002"


class Assignments:
    """The distributor's answers where the publisher belongs; the test changes ``address`` and ``status``."""

    def __init__(self) -> None:
        self.address = HERE
        self.status = 200
        self.away = False
        self.client = DistributorClient("http://d", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/topics/t/publishers/p"
        if self.away:
            raise httpx.ConnectError("connection refused")
        if self.status != 200:
            detail = {"title": "no", "status": self.status, "detail": "no such topic", "field": "topic", "value": "t"}
            return httpx.Response(self.status, json=detail)
        found = {"topic": "t", "publisher_id": "p", "declared": True, "broker": "b", "version": 1}
        return httpx.Response(200, json=found | {"address": self.address})


class Outcomes:
    """Publishes, each in a task of its own, started in order; what became of them."""

    def __init__(self, publisher: Publisher, tasks: TaskGroup) -> None:
        self._publisher = publisher
        self._tasks = tasks
        self.ended: dict[bytes, Receipt | Exception] = {}

    async def start(self, *bodies: bytes) -> None:
        for body in bodies:
            self._tasks.start_soon(self._one, body)
            await settled()

    async def _one(self, body: bytes) -> None:
        try:
            self.ended[body] = await self._publisher.publish(body)
        except (PublishRefused, Closed) as error:
            self.ended[body] = error


@asynccontextmanager
async def running(
    network: Network, assignments: Assignments, *, tells_left: bool = False
) -> AsyncIterator[tuple[Publisher, Session, Outcomes]]:
    """A connected publisher, the broker's end of its connection, and what is to be published within the block."""
    publisher = Publisher("t", "p", distributor=assignments.client, connect=network.connect)
    sessions = []

    async def accept() -> None:
        session = await network.dialled_by()
        await session.greet(tells_left=tells_left)
        sessions.append(session)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        async with publisher:
            yield publisher, sessions[0], Outcomes(publisher, tasks)


async def expect_bodies(session: Session, *bodies: bytes) -> None:
    assert [await session.command() for _ in bodies] == [(b"PUB t", body) for body in bodies]


async def tell(session: Session, address: str, version: int) -> None:
    """The publisher to move there, and let it act on it."""
    await session.respond(f"_move_ {address} {version}".encode())
    await settled()
