"""Histories of a real broker with real traffic, reported to a scripted distributor: every message is in one bin."""

from __future__ import annotations

from itertools import dropwhile, pairwise
from pathlib import Path

import msgspec
import pytest
import trio

from srtm.control import DesiredTopic, HistoryReport, Share, TopicHistory
from srtm.net.http_server import Response
from tests.support.broker_process import broker, publish
from tests.support.http_server import serve_http
from tests.support.scripted_distributor import ScriptedDistributor

pytestmark = pytest.mark.slow

SHARE = Share(version=1, rate=100.0, burst=10.0, full=True)
TOPICS = [
    DesiredTopic(topic="t", share=SHARE, publishers=["p0"], channels=["c"], histories=True),
    DesiredTopic(topic="unwatched", share=SHARE, publishers=["p0"], channels=["c"]),
]


class Listening(ScriptedDistributor):
    """Takes histories."""

    def __init__(self) -> None:
        super().__init__(*TOPICS)
        self.histories: list[TopicHistory] = []

    def take(self, segments: list[str], body: bytes) -> Response:
        assert segments == ["v1", "brokers", "b1", "history"]
        self.histories += msgspec.json.decode(body, type=HistoryReport).topics
        return Response(204)

    @property
    def arrivals(self) -> int:
        return sum(sum(history.arrivals) for history in self.histories)

    @property
    def waiting(self) -> list[int]:
        return [count for history in self.histories for count in history.waiting]

    async def until_nothing_waits_any_more(self) -> None:
        await self.until(lambda: any(self.waiting) and not self.waiting[-1])


async def test_every_message_is_in_one_bin_and_what_waits_is_told(tmp_path: Path) -> None:
    distributor = Listening()
    with trio.fail_after(50):
        async with trio.open_nursery() as nursery:
            url = f"http://{await serve_http(nursery, distributor.answer)}"
            with broker(tmp_path, "--distributor", url, "--mcap", "1000") as running:
                await distributor.in_force()
                publish(running, "p0", 60)  # ten go at once, the last one after half a second
                publish(running, "p0", 1)
                await distributor.until(lambda: distributor.arrivals >= 61)
                await distributor.until_nothing_waits_any_more()
            nursery.cancel_scope.cancel()
    # Where the broker has looked before the first message came, it has told that nothing does.
    told = list(dropwhile(lambda history: not any(history.arrivals), distributor.histories))
    assert distributor.arrivals == 61
    assert {history.topic for history in told} == {"t"}
    assert {history.share_version for history in told} == {1}
    assert 30 <= max(distributor.waiting) <= 51  # as of the edge of a bin
    largest = max(work for history in told for work in history.unfinished)
    assert 60 <= largest <= 61  # U = b - tokens + waiting, after the last of them
    assert all(later.first_ns == earlier.end_ns for earlier, later in pairwise(told))
