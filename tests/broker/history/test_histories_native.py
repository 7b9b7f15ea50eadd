"""The extension's word on what cannot be measured, and on histories of topics that are none."""

import msgspec
import pytest

from broker.config import EngineConfig
from broker.history.bins import EngineHistories

native = pytest.importorskip("srtm._native", reason="the extension is not built: make build", exc_type=ImportError)


@pytest.fixture
def engine():
    made = native.Engine(msgspec.json.encode(EngineConfig(tcp_address="127.0.0.1:0")))
    made.start()
    made.set_bucket("t", 10_000_000, 5_000_000, False, 10, 1000, 1, True)
    made.create_topic("unlimited")
    yield made
    made.stop(10_000)


@pytest.mark.parametrize(
    ("topic", "target_ns", "rule"),
    [
        ("t", 0, "must be above 0"),
        ("t", -1, "must be above 0"),
        ("unlimited", 1, "no limit"),
        ("nowhere", 1, "no limit"),
    ],
)
def test_what_cannot_be_measured_is_refused(engine, topic, target_ns, rule):
    with pytest.raises(ValueError, match=rule):
        native.Measurement(engine, topic, target_ns)


def test_a_measurement_outlives_the_limit_of_its_topic(engine):
    measurement = native.Measurement(engine, "t", 1_000_000)
    engine.clear_bucket("t")
    measurement.advance()
    assert measurement.intervals(True) == ([], [], [], [])
    assert measurement.percentiles(99.0) == (0, 0, 0, 0)
    assert measurement.recording() == ([], [], 0, [], [], [])


def test_a_measurement_of_an_engine_that_has_stopped_fails(engine):
    measurement = native.Measurement(engine, "t", 1_000_000)
    engine.stop(10_000)
    with pytest.raises(RuntimeError):
        measurement.advance()


def test_topics_without_a_limit_and_unknown_ones_have_no_history(engine):
    told = msgspec.json.decode(engine.histories(["t", "unlimited", "nowhere"], 0), type=EngineHistories)
    assert told.topics == []
    assert (told.until > 0, told.bin_ns) == (True, 100_000_000)
