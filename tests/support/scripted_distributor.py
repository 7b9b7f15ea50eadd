"""A distributor for one real broker, whose answers stand in the test."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from srtm.control import DesiredTopic, MeasurementRequest, SyncAnswer, SyncRequest
from srtm.net.http_server import Request, Response, json_response


class ScriptedDistributor:
    """Wants ``topics`` and ``measurements``; what the broker tells apart from its syncs, ``take`` answers."""

    def __init__(self, *topics: DesiredTopic) -> None:
        self.topics = list(topics)
        self.measurements: list[MeasurementRequest] = []
        self.syncs: list[SyncRequest] = []
        self._news = trio.Event()

    async def answer(self, request: Request) -> Response:
        body = await request.read_body(1 << 30)
        self._news.set()
        self._news = trio.Event()
        if request.segments[-1] != "sync":
            return self.take(request.segments, body)
        asked = msgspec.json.decode(body, type=SyncRequest)
        self.syncs.append(asked)
        unchanged = asked.have_version == 1
        answer = SyncAnswer(version=1, topics=self.topics, measurements=self.measurements, unchanged=unchanged)
        return json_response(answer)

    def take(self, segments: list[str], body: bytes) -> Response:
        raise NotImplementedError

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._news.wait()

    async def in_force(self) -> None:
        """The broker says that it applies all shares, each of version 1."""
        wanted = {topic.topic: 1 for topic in self.topics}
        await self.until(lambda: bool(self.syncs) and self.syncs[-1].applied == wanted)
