import msgspec
import pytest

from broker import events, snapshot
from tests.support.fake_engine import FakeEngine


def test_a_snapshot_is_typed_and_filtered():
    engine = FakeEngine()
    engine.set_bucket("t", 1_500_000, 2_000_000, True, 10, 20, 3, False)
    engine.create_topic("u")
    assert [topic.topic_name for topic in snapshot.take(engine).topics] == ["t", "u"]
    found = snapshot.find_topic(engine, "t")
    assert found.bucket.rate_micro == 1_500_000
    assert found.bucket.reject
    assert snapshot.find_topic(engine, "v") is None
    assert snapshot.take(engine, snapshot.NO_TOPIC).topics == []


def test_a_field_of_the_wrong_type_is_told_where_it_is():
    class Lying(FakeEngine):
        def snapshot(self, *_arguments):
            return super().snapshot("", "", False).replace(b'"connections":0', b'"connections":"many"')

    with pytest.raises(msgspec.ValidationError, match=r"\$\.connections"):
        snapshot.take(Lying())


def test_events_come_typed_and_once():
    engine = FakeEngine()
    engine.emit(type="unassigned_publisher", topic="t", publisher_id="p")
    engine.emit(type="starved", topic="t", waiting=4)
    engine.emit(type="lapsed", topic="t", waiting=0)
    engine.emit(type="failed", reason="epoll")
    assert events.drain(engine) == [
        events.UnassignedPublisherSeen("t", "p"),
        events.Starved("t", 4),
        events.LeaseExpired("t", 0),
        events.Failed("epoll"),
    ]
    assert events.drain(engine) == []
