"""Channels of links: one of each topic that another broker wants, as long as it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.links import interest
from broker.links.consuming_brokers import ConsumingBrokers
from srtm.control import LinkRequest
from srtm.errors import BadInput
from tests.support.fake_engine import FakeEngine

CHANNEL = "srtm.link.b2"
FILTERS = {"heat": ["plant/+/heat"]}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def make(engine: FakeEngine) -> Callable[..., ConsumingBrokers]:
    def make(*, speaks_mqtt: bool = False, **notes: Callable[[str], None]) -> ConsumingBrokers:
        consuming = ConsumingBrokers(
            engine,  # type: ignore[arg-type]
            FILTERS.get,
            tcp_address="a:4150",
            default_topic="default",
            speaks_mqtt=speaks_mqtt,
            ready=100,
            patience_s=60.0,
            **notes,
        )
        for topic in list(engine.topics):
            consuming.note_topic(topic)
        return consuming

    return make


def wanted(*filters: str, durable: bool = False) -> LinkRequest:
    return LinkRequest(sender="b2", filters=list(filters), durable=durable)


def linked(engine: FakeEngine) -> list[str]:
    return sorted(name for name, topic in engine.topics.items() if CHANNEL in topic.channels)


def test_a_broker_has_a_channel_of_each_topic_that_it_wants_and_of_no_other(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    for topic in ("heat", "roads", "rain"):
        engine.create_topic(topic)
    consuming = make()
    answer = consuming.register("b2", wanted("plant/7/#", "rain"), 0.0)
    assert (answer.topics, linked(engine)) == (["heat", "rain"], ["heat", "rain"])
    assert (answer.tcp_address, answer.channel, answer.ready) == ("a:4150", CHANNEL, 100)
    assert ("allow_links", "b2", CHANNEL, ["plant/7/#", "rain"], [], [], False) in engine.calls
    assert consuming.register("b2", wanted("rain", "roads"), 1.0).topics == ["rain", "roads"]
    assert linked(engine) == ["rain", "roads"]
    assert consuming.register("b2", wanted(), 2.0).topics == []
    assert linked(engine) == []


def test_the_same_again_changes_nothing_and_has_the_same_key(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    engine.create_topic("rain")
    consuming = make()
    first = consuming.register("b2", wanted("#"), 0.0)
    calls = list(engine.calls)
    assert consuming.register("b2", wanted("#"), 1.0) == first
    assert engine.calls == calls
    assert consuming.register("b3", LinkRequest(sender="b3", filters=["#"]), 1.0).key != first.key


def test_a_new_topic_has_the_channel_before_a_message_of_it_goes_anywhere(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    consuming = make(speaks_mqtt=True)
    assert consuming.register("b2", wanted("rain/#"), 0.0).topics == ["default", "srtm.retained"]
    for topic in ("rain", "heat"):
        engine.create_topic(topic)
        consuming.note_topic(topic)
    assert linked(engine) == ["default", "rain", "srtm.retained"]
    FILTERS["heat"].append("rain/7")
    try:
        consuming.recheck()
        assert linked(engine) == ["default", "heat", "rain", "srtm.retained"], "its names are others now"
    finally:
        FILTERS["heat"].pop()
    engine.topics.pop("rain")
    consuming.forget_topic("rain")
    assert consuming.register("b2", wanted("rain/#"), 1.0).topics == ["default", "heat", "srtm.retained"]


def test_news_of_one_filter_or_topic_does_not_match_all_of_both_again(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers], monkeypatch: pytest.MonkeyPatch
) -> None:
    matches: list[str] = []
    match = interest.shared_name
    monkeypatch.setattr(interest, "shared_name", lambda one, name: matches.append(name) or match(one, name))
    for number in range(50):
        engine.create_topic(f"topic-{number}")
    consuming = make()
    filters = [f"of/{number}" for number in range(50)]
    consuming.register("b2", wanted(*filters), 0.0)
    assert len(matches) == 50 * 50
    consuming.recheck()
    assert len(matches) == 50 * 50, "no name has changed"
    assert consuming.register("b2", wanted(*filters, "topic-7"), 1.0).topics == ["topic-7"]
    assert len(matches) <= 50 * 50 + 50
    assert consuming.register("b2", wanted(*filters[1:]), 2.0).topics == []


def test_a_mark_is_sent_once_behind_what_is_retained_where_mqtt_is_spoken(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    consuming = make(speaks_mqtt=True)
    asked = LinkRequest(sender="b2", filters=[], mark="n 1")
    for _ in range(2):
        answer = consuming.register("b2", asked, 0.0)
        assert (answer.topics, answer.marks) == (["srtm.retained"], True)
    assert [call for call in engine.calls if call[0] == "mark_link"] == [("mark_link", CHANNEL, "n 1")]


def test_where_mqtt_is_not_spoken_nothing_is_retained_and_no_mark_is_sent(
    make: Callable[..., ConsumingBrokers],
) -> None:
    answer = make().register("b2", LinkRequest(sender="b2", filters=["#"], mark="n 1"), 0.0)
    assert (answer.topics, answer.marks) == ([], False)


def test_members_of_a_shared_subscription_want_its_topics(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    for topic in ("heat", "roads"):
        engine.create_topic(topic)
    asked = LinkRequest(sender="b2", filters=[], groups=["$share/g/plant/+/heat"])
    assert make().register("b2", asked, 0.0).topics == ["heat"]


def test_a_shared_subscription_whose_members_are_away_wants_its_topics(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    for topic in ("heat", "roads"):
        engine.create_topic(topic)
    asked = LinkRequest(sender="b2", filters=[], kept=["$share/g/plant/+/heat"])
    assert make().register("b2", asked, 0.0).topics == ["heat"]
    assert ("allow_links", "b2", CHANNEL, [], [], asked.kept, True) in engine.calls


def test_a_broker_has_started_anew_when_its_marks_are_of_another_incarnation(
    make: Callable[..., ConsumingBrokers],
) -> None:
    started: list[str] = []
    consuming = make(note_started=started.append)
    for mark, times in (("n 1", 1), ("n 1", 1), ("n 2", 1), ("m 1", 2)):
        consuming.register("b2", LinkRequest(sender="b2", mark=mark), 0.0)
        assert started == ["b2"] * times, mark


def test_channels_of_an_earlier_incarnation_are_taken_over_or_removed(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    for topic in ("rain", "roads"):
        engine.create_topic(topic).channels[CHANNEL] = False
    assert make().register("b2", wanted("rain"), 0.0).topics == ["rain"]
    assert linked(engine) == ["rain"]


def test_channels_of_a_broker_that_is_away_for_too_long_are_dropped(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    engine.create_topic("rain").channels["srtm.link.b3"] = False  # of an earlier incarnation
    engine.topics["rain"].channels["mine"] = False
    consuming = make()
    consuming.register("b2", wanted("rain"), 0.0)
    assert consuming.drop_lost(10.0) == []
    consuming.register("b2", wanted("rain"), 60.0)
    assert consuming.drop_lost(71.0) == ["srtm.link.b3"]
    assert consuming.drop_lost(121.0) == [CHANNEL]
    assert list(engine.topics["rain"].channels) == ["mine"]
    assert ("forbid_links", "b2") in engine.calls


def test_what_is_no_filter_is_refused_and_changes_nothing(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    engine.create_topic("rain")
    consuming = make()
    with pytest.raises(BadInput, match="filters"):
        consuming.register("b2", wanted("rain", "#/x"), 0.0)
    assert linked(engine) == []


def test_the_channels_of_a_broker_that_leaves_go_at_once(
    engine: FakeEngine, make: Callable[..., ConsumingBrokers]
) -> None:
    engine.create_topic("rain")
    left: list[str] = []
    consuming = make(speaks_mqtt=True, note_left=left.append)
    consuming.register("b2", wanted("rain"), 0.0)
    assert linked(engine) != []
    assert left == []
    answer = consuming.register("b2", LinkRequest(sender="b2", leaves=True), 1.0)
    assert (answer.topics, linked(engine), left) == ([], [], ["b2"])
    assert ("forbid_links", "b2") in engine.calls
    assert consuming.register("b2", LinkRequest(sender="b2", leaves=True), 2.0).topics == [], "it says so again"
