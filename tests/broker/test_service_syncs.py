"""What happens at a broker reaches its distributor at once: no clock moves between the two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from broker import service
from broker.sync.loop import PERIOD_S
from srtm.control import LinkRequest, SyncRequest
from srtm.log import Log
from srtm.net.failover import Distributors
from tests.support.broker_service import config
from tests.support.fake_engine import FakeEngine
from tests.support.sync_rig import FakeDistributor, settle


class Syncing(FakeDistributor):
    """Answers syncs; all else that a broker asks for waits."""

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]:
        if not target.endswith("/sync"):
            await trio.sleep_forever()
        status, answer = await super().request(method, target, body, timeout_s=timeout_s)
        return status, answer


@pytest.fixture
def distributor(monkeypatch: pytest.MonkeyPatch) -> Syncing:
    played = Syncing(version=1)
    played.takes_reports = True
    log = Log("b1", lambda _line: None)
    monkeypatch.setattr("broker.member.connected", lambda *_, **__: Distributors([played], Syncing, log))
    return played


@pytest.fixture
async def engine(
    tmp_path: Path, engines: list[FakeEngine], distributor: Syncing, nursery: trio.Nursery, mock_clock: Any
) -> FakeEngine:
    """Of a member with topic ``t`` and channel ``c``, which is in sync: its next request would be in ``PERIOD_S``."""
    await nursery.start(service.serve, config(tmp_path, distributors=("http://127.0.0.1:9",)))
    engines[0].create_topic("t")
    engines[0].create_channel("t", "c")
    await settle()
    mock_clock.jump(PERIOD_S)
    await settle()
    distributor.requests.clear()
    return engines[0]


def delete_channel(engine: FakeEngine) -> None:
    engine.delete_channel("t", "c")
    engine.emit(type="channel_deleted", topic="t", channel="c")


def start_another_broker(engine: FakeEngine) -> None:
    engine.ask("PUT", "/v1/links/b2", msgspec.json.encode(LinkRequest(sender="b2", mark="1 1")))


def channels(asked: SyncRequest) -> dict[str, list[str]]:
    return {report.topic: report.channels for report in asked.topics}


@pytest.mark.parametrize(
    ("happen", "is_told"),
    [
        pytest.param(
            lambda engine: engine.emit(type="unassigned_publisher", topic="t", publisher_id="p"),
            lambda asked: [(one.topic, one.publisher_id) for one in asked.strangers] == [("t", "p")],
            id="a publisher that belongs elsewhere",
        ),
        pytest.param(
            lambda engine: engine.emit(type="starved", topic="t", waiting=1),
            lambda asked: not asked.partial,
            id="messages without tokens",
        ),
        pytest.param(
            lambda engine: engine.create_topic("new"), lambda asked: channels(asked) == {"new": []}, id="a new topic"
        ),
        pytest.param(lambda engine: engine.delete_topic("t"), lambda asked: asked.gone == ["t"], id="a deleted topic"),
        pytest.param(
            lambda engine: engine.create_channel("t", "new"),
            lambda asked: channels(asked) == {"t": ["c", "new"]},
            id="a new channel",
        ),
        pytest.param(delete_channel, lambda asked: channels(asked) == {"t": []}, id="a deleted channel"),
        pytest.param(start_another_broker, lambda asked: not asked.partial, id="a broker that has started anew"),
    ],
)
async def test_what_the_distributor_is_to_know_is_told_at_once(
    engine: FakeEngine,
    distributor: Syncing,
    mock_clock: Any,
    happen: Callable[[FakeEngine], object],
    is_told: Callable[[SyncRequest], bool],
) -> None:
    now_s = mock_clock.current_time()
    assert distributor.requests == []
    happen(engine)
    await settle()
    at_s, asked = distributor.requests[0]
    assert (at_s, asked.wait_s) == (now_s, 0.0), "it asks for an answer at once"
    assert is_told(asked)


async def test_how_far_a_drain_is_is_told_at_each_look_at_what_is_left(
    engine: FakeEngine, distributor: Syncing, mock_clock: Any
) -> None:
    engine.topics["t"].messages.append(b"left")
    distributor.draining = True
    distributor.change(2)
    await settle()
    mock_clock.jump(2.0)  # from now on publishers are refused
    await settle()
    for left in (2, 3):
        engine.topics["t"].messages.append(b"more")
        distributor.requests.clear()
        mock_clock.jump(0.2)  # the first two looks are at most 0.1 s apart
        await settle()
        _, asked = distributor.requests[0]
        assert (asked.wait_s, asked.drain and asked.drain.left.total) == (0.0, left)
