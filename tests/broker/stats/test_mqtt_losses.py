"""What MQTT's clients lost by topic: nothing is said of those that lost nothing."""

from __future__ import annotations

from broker import snapshot
from broker.snapshot import MqttTopic
from broker.stats.mqtt_channels import MOST_GROUPS
from broker.stats.mqtt_losses import full_by_topic, losses_by_topic
from srtm.control import MqttLosses
from tests.support.fake_engine import FakeEngine

_FIGURES = {"depth": 4, "in_flight": 2, "messages": 9, "holders": 3, "dropped": 50}


def held(topic: str, full: int, group: str = "") -> MqttTopic:
    return MqttTopic(topic=topic, full=full, group=group, **_FIGURES)


def test_full_sessions_are_one_channel_and_each_full_group_another() -> None:
    group = "$share/workers/plant/#"
    found = full_by_topic([held("heat", 5), held("heat", 2, group), held("heat", 0, "$share/idle/#"), held("noise", 0)])
    assert found == {"heat": {"mqtt": 5, group: 2}}


def test_of_many_full_groups_those_that_lost_most_are_told() -> None:
    many = [held("heat", number, f"$share/{number}/#") for number in range(1, 101)]
    (full,) = full_by_topic(many).values()
    assert sorted(full.values()) == list(range(101 - MOST_GROUPS, 101))


def test_publishes_that_were_not_taken_and_full_sessions_are_told_by_topic_here_or_elsewhere() -> None:
    engine = FakeEngine()
    for topic in ("heat", "quiet", "noise"):
        engine.create_topic(topic)
    engine.topics["heat"].untaken = {"mqtt_refused": [0, 7, 2]}
    engine.topics["noise"].untaken = {"mqtt_dropped": [5, 0, 0]}
    engine.mqtt_topics = [{"topic": topic, "full": 3, **_FIGURES} for topic in ("heat", "elsewhere")]
    assert losses_by_topic(snapshot.take(engine)) == {  # type: ignore[arg-type]
        "heat": MqttLosses(refused=[0, 7, 2], full={"mqtt": 3}),
        "noise": MqttLosses(dropped=[5, 0, 0]),
        "elsewhere": MqttLosses(full={"mqtt": 3}),
    }
