"""What the system tests share: the ``srtm`` command as a process, and traffic through a running cluster."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber


async def srtm(
    *arguments: str, distributor: str | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``srtm ARGUMENTS`` to its end."""
    command = [sys.executable, "-m", "srtm", *arguments]
    if distributor is not None:
        command += ["--distributor", distributor]
    return await trio.run_process(command, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False)


def topic_file(folder: Path, name: str, *, publishers: int, rate_each: float, rate: float, more: str = "") -> Path:
    """A topic whose publishers are ``NAME-1`` and so on; ``more``: further lines of the file's head."""
    file = folder / f"{name}.toml"
    file.write_text(
        f'name = "{name}"\nrate = {rate}\nburst = 50\nmode = "static"\n{more}\n'
        "[slo]\npercentile = 99\nlatency_ms = 50\n"
        f'[[publishers]]\ncount = {publishers}\nrate = {rate_each}\nid_prefix = "{name}-"\n'
    )
    return file


class Received:
    """Everything that came, counted; a body that came twice is seen as such."""

    def __init__(self) -> None:
        self.bodies: Counter[bytes] = Counter()
        self.brokers: Counter[str] = Counter()
        self._changed = trio.Event()

    async def take_all(self, subscriber: Subscriber) -> None:
        async for delivery in subscriber:
            self.bodies[delivery.body] += 1
            self.brokers[delivery.broker] += 1
            await delivery.finish()
            self._changed.set()
            self._changed = trio.Event()

    async def wait_for(self, wanted: Sequence[bytes]) -> None:
        while not self.bodies.keys() >= set(wanted):
            await self._changed.wait()


@asynccontextmanager
async def receiving(topic: str, distributor: str) -> AsyncIterator[Received]:
    received = Received()
    async with Subscriber(topic, "test", distributor=distributor) as subscriber, trio.open_nursery() as nursery:
        nursery.start_soon(received.take_all, subscriber)
        yield received
        nursery.cancel_scope.cancel()


async def publish_all(topic: str, publisher_id: str, distributor: str, bodies: Sequence[bytes]) -> str:
    """Returns the address of the broker that took the last one."""
    async with Publisher(topic, publisher_id, distributor=distributor) as publisher:
        for body in bodies:
            await publisher.publish(body)
        assert publisher.address is not None
        return publisher.address


class Traffic:
    """Every publisher sends a message each 20 ms and waits for its answer; all that was answered is in ``accepted``."""

    def __init__(self, topic: str, client: DistributorClient) -> None:
        self.accepted: dict[str, list[bytes]] = {}
        self._topic = topic
        self._client = client
        self._changed = trio.Event()

    async def run(self, publisher_id: str) -> None:
        bodies = self.accepted[publisher_id] = []
        async with Publisher(self._topic, publisher_id, distributor=self._client) as publisher:
            while True:
                body = f"{publisher_id} {len(bodies)}".encode()
                await publisher.publish(body)
                bodies.append(body)
                self._changed.set()
                self._changed = trio.Event()
                await trio.sleep(0.02)

    async def wait_for_more(self, publisher_ids: list[str], count: int) -> None:
        """Until each of them has had ``count`` more messages accepted."""
        goal = {one: len(self.accepted.get(one, [])) + count for one in publisher_ids}
        while any(len(self.accepted.get(one, [])) < wanted for one, wanted in goal.items()):
            await self._changed.wait()
