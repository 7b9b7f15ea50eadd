import json

import pytest

from broker import snapshot
from broker.nsqd import metadata
from srtm.errors import BadInput
from tests.support.fake_engine import FakeEngine


def filled_engine():
    engine = FakeEngine()
    engine.create_topic("t")
    engine.create_channel("t", "c")
    engine.create_channel("t", "tail#ephemeral")
    engine.pause_channel("t", "c", True)
    engine.create_topic("quiet")
    engine.pause_topic("quiet", True)
    engine.create_topic("gone#ephemeral")
    return engine


def test_what_was_saved_comes_back_in_a_new_engine(tmp_path):
    metadata.save(tmp_path, metadata.from_snapshot(snapshot.take(filled_engine()), "1.3.0", {}))
    engine = FakeEngine()
    metadata.restore(engine, metadata.load(tmp_path))
    assert {name: topic.channels for name, topic in engine.topics.items()} == {"t": {"c": True}, "quiet": {}}
    assert engine.topics["quiet"].paused
    assert not engine.topics["t"].paused


def test_the_file_is_nsqds(tmp_path):
    metadata.save(tmp_path, metadata.from_snapshot(snapshot.take(filled_engine()), "1.3.0", {}))
    assert json.loads((tmp_path / "nsqd.dat").read_bytes()) == {
        "topics": [
            {"name": "t", "paused": False, "channels": [{"name": "c", "paused": True}]},
            {"name": "quiet", "paused": True, "channels": []},
        ],
        "version": "1.3.0",
    }


def test_nsqds_null_channels_are_read(tmp_path):
    (tmp_path / "nsqd.dat").write_text('{"topics":[{"name":"t","paused":false,"channels":null}],"version":"1.3.0"}')
    engine = FakeEngine()
    metadata.restore(engine, metadata.load(tmp_path))
    assert list(engine.topics) == ["t"]


def test_a_list_that_is_null_is_empty_as_nsqd_reads_it(tmp_path):
    (tmp_path / "nsqd.dat").write_text("null")
    assert metadata.load(tmp_path) == metadata.Metadata()


def test_nsqds_null_topics_are_read(tmp_path):
    (tmp_path / "nsqd.dat").write_text('{"topics":null,"version":"1.3.0"}')
    engine = FakeEngine()
    assert metadata.restore(engine, metadata.load(tmp_path)) == []
    assert list(engine.topics) == []


def test_names_that_are_none_are_left_out_and_told(tmp_path):
    topics = [{"name": "no name"}, {"name": "t", "channels": [{"name": ""}, {"name": "c"}]}]
    (tmp_path / "nsqd.dat").write_text(json.dumps({"topics": topics}))
    engine = FakeEngine()
    assert metadata.restore(engine, metadata.load(tmp_path)) == ["no name", ""]
    assert {name: list(topic.channels) for name, topic in engine.topics.items()} == {"t": ["c"]}


def test_no_file_means_no_topics(tmp_path):
    assert metadata.load(tmp_path) == metadata.Metadata()


def test_a_torn_temporary_file_is_harmless(tmp_path):
    metadata.save(tmp_path, metadata.Metadata([metadata.TopicMetadata("t")]))
    (tmp_path / "nsqd.dat.tmp").write_bytes(b'{"topics":[{"na')
    assert [topic.name for topic in metadata.load(tmp_path).topics] == ["t"]
    metadata.save(tmp_path, metadata.Metadata([metadata.TopicMetadata("u")]))
    assert [topic.name for topic in metadata.load(tmp_path).topics] == ["u"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nsqd.dat"]


def test_a_broken_file_is_refused_and_kept(tmp_path):
    (tmp_path / "nsqd.dat").write_bytes(b"not json")
    with pytest.raises(BadInput, match=r"nsqd\.dat"):
        metadata.load(tmp_path)
    assert (tmp_path / "nsqd.dat").read_bytes() == b"not json"
