"""The list of topics on disk: every change is written, also the last, also late where the disk refuses."""

import errno

import pytest
import trio

from broker import metadata, topic_list
from broker.health import Health
from broker.topic_list import TopicList
from srtm.log import Log
from tests.support.fake_engine import FakeEngine


@pytest.fixture
def engine():
    made = FakeEngine()
    made.create_topic("t")
    return made


async def test_a_disk_that_refuses_shows_in_the_health_until_it_takes_the_list(
    tmp_path, engine, monkeypatch, no_threads, autojump_clock
):
    refused_at = []

    def save(directory, now, save=metadata.save):
        if len(refused_at) < 3:
            refused_at.append(trio.current_time())
            raise OSError(errno.ENOSPC, "No space left on device")
        save(directory, now)

    monkeypatch.setattr(metadata, "save", save)
    health = Health(engine)
    kept = TopicList(engine, tmp_path, "1.3.0", health, Log("b1"))
    kept.note_change()
    with trio.move_on_after(2.5 * topic_list._RETRY_S):
        await kept.keep()
    assert health.text == engine.health == "NOK - [Errno 28] No space left on device"
    with trio.move_on_after(topic_list._RETRY_S):
        kept.note_change()
        await kept.keep()
    assert refused_at == [0.0, 1.0, 2.0]
    assert health.text == engine.health == "OK"
    assert [topic.name for topic in metadata.load(tmp_path).topics] == ["t"]


def test_a_disk_that_refuses_at_the_end_is_told_and_stops_nobody(tmp_path, engine, capsys):
    TopicList(engine, tmp_path / "nowhere", "1.3.0", Health(engine), Log("b1")).save_at_end()
    assert "the list of topics was not written" in capsys.readouterr().err


def test_of_two_failures_the_first_is_told_until_it_is_over(engine):
    health = Health(engine)
    health.note("queues", "disk full")
    health.note("topics", "read-only")
    assert health.text == engine.health == "NOK - disk full"
    health.note("queues", None)
    assert health.text == engine.health == "NOK - read-only"
    health.note("topics", None)
    assert health.text == engine.health == "OK"
