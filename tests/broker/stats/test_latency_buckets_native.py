"""Latency buckets as the engine gives them: one shape on both sides of the boundary."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.config import EngineConfig
from broker.stats import latency_buckets

native = pytest.importorskip("srtm._native", reason="the extension is not built: make build", exc_type=ImportError)


@pytest.fixture
def engine():
    made = native.Engine(msgspec.json.encode(EngineConfig(tcp_address="127.0.0.1:0")))
    made.start()
    made.create_topic("t")
    made.create_topic("u")
    yield made
    made.stop(10_000)


def test_bounds_follow_the_promise_and_nothing_is_delivered_yet(engine):
    engine.set_promise("t", 8_000_000)
    promised, other = latency_buckets.take(engine, ["t", "nowhere", "u"])
    assert (promised.topic, other.topic) == ("t", "u")
    assert [bound / 1e6 for bound in promised.bounds_ns] == [0.0625 * 2**step for step in range(12)]
    assert other.bounds_ns[7] == 10_000_000
    assert (promised.access.counts, promised.total.sum_ns, promised.late) == ([0] * 13, 0, 0)


def test_the_text_has_a_histogram_for_each_part_and_topic(engine):
    text = b"".join(latency_buckets.text(latency_buckets.take(engine, ["t", "u"]))).decode()
    families = list(text_string_to_metric_families(text))
    assert [family.name for family in families] == [name for name, _ in latency_buckets.KINDS.values()]
    assert {len(family.samples) for family in families} == {2 * 15}
    assert {family.type for family in families} == {"histogram"}


def test_an_engine_that_has_stopped_has_none(engine):
    engine.stop(10_000)
    with pytest.raises(RuntimeError):
        latency_buckets.take(engine, ["t"])
