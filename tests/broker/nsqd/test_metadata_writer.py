"""The list of topics on disk: every change is written, also the last, also late where the disk refuses."""

import errno
from itertools import pairwise

import pytest
import trio

from broker import snapshot
from broker.nsqd import metadata
from broker.nsqd import metadata_writer as topic_list
from broker.nsqd.metadata_writer import TopicListWriter
from broker.runtime.health import Health
from srtm.log import Log
from tests.support.fake_engine import FakeEngine


@pytest.fixture
def engine():
    made = FakeEngine()
    made.create_topic("t")
    return made


async def test_a_disk_that_refuses_shows_in_the_health_until_it_takes_the_list(
    tmp_path, engine, monkeypatch, no_threads, autojump_clock, capsys
):
    refused_at = []

    def save(directory, now, save=metadata.save):
        if len(refused_at) < 3:
            refused_at.append(trio.current_time())
            raise OSError(errno.ENOSPC, "No space left on device")
        save(directory, now)

    monkeypatch.setattr(metadata, "save", save)
    health = Health(engine)
    kept = TopicListWriter(engine, tmp_path, "1.3.0", health, Log("b1"))
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
    logged = capsys.readouterr().err
    assert logged.count("the list of topics was not written") == 1, "a full disk does not get a line a second"
    assert logged.count("the list of topics is written again") == 1


async def test_after_a_look_at_many_topics_the_next_waits_in_proportion_and_misses_nothing(
    tmp_path, engine, monkeypatch, no_threads, mock_clock
):
    look_s, looked_at = 0.015, []

    def take(engine, take=snapshot.take):
        looked_at.append(trio.current_time())
        mock_clock.jump(look_s)
        return take(engine)

    monkeypatch.setattr(snapshot, "take", take)
    mock_clock.autojump_threshold = 0
    kept = TopicListWriter(engine, tmp_path, "1.3.0", Health(engine), Log("b1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keep)
        for number in range(100):
            engine.create_topic(f"t{number}")
            kept.note_change()
            await trio.sleep(0.01)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    rest_s = topic_list._PAUSE_FACTOR * look_s
    assert looked_at[0] == 0.0
    assert all(later - earlier >= rest_s for earlier, later in pairwise(looked_at))
    assert len(looked_at) <= 2 + 1.0 / rest_s
    assert len(metadata.load(tmp_path).topics) == 101


def test_a_disk_that_refuses_at_the_end_is_told_and_stops_nobody(tmp_path, engine, capsys):
    TopicListWriter(engine, tmp_path / "nowhere", "1.3.0", Health(engine), Log("b1")).save_at_end()
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


async def test_what_is_to_be_written_at_once_is_on_disk_when_the_call_returns_whatever_the_rest(
    tmp_path, engine, monkeypatch, no_threads, mock_clock, nursery
):
    def take(engine, take=snapshot.take):
        mock_clock.jump(0.015)
        return take(engine)

    monkeypatch.setattr(snapshot, "take", take)
    kept = TopicListWriter(engine, tmp_path, "1.3.0", Health(engine), Log("b1"))
    kept.note_change()
    nursery.start_soon(kept.keep)
    await trio.testing.wait_all_tasks_blocked()
    for paused in (True, False, True):
        engine.pause_topic("t", paused)
        await kept.write()  # the clock does not move by itself
        assert [topic.paused for topic in metadata.load(tmp_path).topics] == [paused]
    nursery.cancel_scope.cancel()


async def test_who_waits_for_the_list_learns_soon_that_the_disk_refuses(
    tmp_path, engine, monkeypatch, no_threads, mock_clock, nursery
):
    def refused(_directory, _now):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metadata, "save", refused)
    health = Health(engine)
    kept = TopicListWriter(engine, tmp_path, "1.3.0", health, Log("b1"))
    nursery.start_soon(kept.keep)
    await kept.write()
    assert health.text == "NOK - [Errno 28] No space left on device"
    nursery.cancel_scope.cancel()


def test_what_is_made_while_the_list_is_written_for_the_last_time_would_be_missing_in_it(tmp_path, engine, monkeypatch):
    final = []
    monkeypatch.setattr(metadata, "save", lambda _directory, _now: final.append(engine.list_is_final))
    TopicListWriter(engine, tmp_path, "1.3.0", Health(engine), Log("b1")).save_at_end()
    assert final == [True]
