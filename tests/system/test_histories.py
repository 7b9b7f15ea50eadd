"""Histories of a real broker with real traffic, reported to a scripted distributor: every message is in one bin."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import trio

from srtm.control import DesiredTopic, HistoryReport, Share, SyncAnswer, SyncRequest, TopicHistory
from srtm.http_api import Request, Response, json_response
from tests.support.http_server import HttpServer
from tests.system.test_broker_process import broker
from tests.system.test_measurement import publish

pytestmark = pytest.mark.slow

SHARE = Share(version=1, rate=100.0, burst=10.0, full=True)
TOPICS = [
    DesiredTopic(topic="t", share=SHARE, publishers=["p0"], channels=["c"], histories=True),
    DesiredTopic(topic="unwatched", share=SHARE, publishers=["p0"], channels=["c"]),
]


class ScriptedDistributor:
    def __init__(self) -> None:
        self.applied: dict[str, int] = {}
        self.histories: list[TopicHistory] = []
        self._news = trio.Event()

    async def answer(self, request: Request) -> Response:
        body = await request.read_body(1 << 30)
        self._news.set()
        self._news = trio.Event()
        if request.segments[-1] == "sync":
            asked = msgspec.json.decode(body, type=SyncRequest)
            self.applied = asked.applied
            return json_response(SyncAnswer(version=1, topics=TOPICS, unchanged=asked.have_version == 1))
        assert request.segments == ["v1", "brokers", "b1", "history"]
        self.histories += msgspec.json.decode(body, type=HistoryReport).topics
        return Response(204)

    @property
    def arrivals(self) -> int:
        return sum(sum(history.arrivals) for history in self.histories)

    async def in_force(self) -> None:
        while self.applied != {"t": 1, "unwatched": 1}:
            await self._news.wait()

    async def until(self, arrivals: int) -> None:
        while self.arrivals < arrivals:
            await self._news.wait()

    @property
    def waiting(self) -> list[int]:
        return [count for history in self.histories for count in history.waiting]

    async def until_nothing_waits_any_more(self) -> None:
        while not any(self.waiting) or self.waiting[-1]:
            await self._news.wait()


async def test_every_message_is_in_one_bin_and_what_waits_is_told(tmp_path: Path) -> None:
    distributor = ScriptedDistributor()
    with trio.fail_after(50):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(HttpServer(distributor.answer).serve, listeners)
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            with broker(tmp_path, "--distributor", url, "--mcap", "1000") as running:
                await distributor.in_force()
                publish(running, "p0", 60)  # ten go at once, the last one after half a second
                publish(running, "p0", 1)
                await distributor.until(61)
                await distributor.until_nothing_waits_any_more()
            nursery.cancel_scope.cancel()
    told = distributor.histories
    assert distributor.arrivals == 61
    assert {history.topic for history in told} == {"t"}
    assert {history.share_version for history in told} == {1}
    assert 30 <= max(distributor.waiting) <= 51  # as of the edge of a bin
    largest = max(work for history in told for work in history.unfinished)
    assert 60 <= largest <= 61  # U = b - tokens + waiting, after the last of them
    assert all(later.first_ns == earlier.end_ns for earlier, later in pairwise(told))
