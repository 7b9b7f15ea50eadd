"""Limits set by hand: they outlive their topic and the process, and give way to the distributor's."""

import msgspec

from broker import snapshot
from broker.nsqd import metadata
from broker.nsqd.kept_buckets import KeptBuckets
from broker.nsqd.metadata import BucketSpec
from tests.support.fake_engine import FakeEngine

SPEC = BucketSpec(rate=2.5, burst=10, reject=True, max_backlog=7, max_backlog_bytes=1000)


def _buckets(engine, changes=None):
    return KeptBuckets(engine, lambda: changes.append(1) if changes is not None else None)


def _restarted(directory, managed=()):
    engine = FakeEngine()
    kept = _buckets(engine)
    kept.restore(metadata.load(directory).buckets or {}, set(managed).__contains__)
    return engine, kept


def _save(directory, engine, kept):
    metadata.save(directory, metadata.from_snapshot(snapshot.take(engine), "1.3.0", kept.all))


def test_a_bucket_comes_back_empty_after_a_restart_also_without_its_topic(tmp_path):
    engine, changes = FakeEngine(), []
    kept = _buckets(engine, changes)
    kept.put("t", SPEC, full=True)
    assert engine.calls[-1] == ("set_bucket", "t", 2_500_000, 10_000_000, 0, True, None)
    engine.delete_topic("t")
    _save(tmp_path, engine, kept)
    engine, kept = _restarted(tmp_path)
    assert engine.calls == [("keep_bucket", "t", 2_500_000, 10_000_000, True, 7, 1000)]
    assert (dict(kept.all), len(changes)) == ({"t": SPEC}, 1)


def test_a_topic_that_the_distributor_limits_has_no_bucket_of_hand(tmp_path):
    engine, changes = FakeEngine(), []
    kept = _buckets(engine, changes)
    kept.put("t", SPEC, full=True)
    kept.put("u", SPEC, full=True)
    _save(tmp_path, engine, kept)
    _, restored = _restarted(tmp_path, managed=["t"])
    assert list(restored.all) == ["u"]
    kept.forget("t")
    kept.forget("t")
    assert (list(kept.all), len(changes)) == (["u"], 3)


def test_a_removed_bucket_is_gone_for_good(tmp_path):
    engine = FakeEngine()
    kept = _buckets(engine)
    kept.put("t", SPEC, full=True)
    assert kept.remove("t")
    assert not kept.remove("t")
    _save(tmp_path, engine, kept)
    assert _restarted(tmp_path)[0].calls == []


def test_the_list_is_nsqds_as_long_as_no_bucket_is_kept(tmp_path):
    engine = FakeEngine()
    _save(tmp_path, engine, _buckets(engine))
    assert msgspec.json.decode((tmp_path / metadata.FILE_NAME).read_bytes()) == {"topics": [], "version": "1.3.0"}
