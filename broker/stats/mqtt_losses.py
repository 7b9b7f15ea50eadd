"""What MQTT's clients of each topic lost here, for excess or want of room, by channel of ``mqtt_channels``. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import nlargest
from operator import itemgetter

from broker.snapshot import MqttTopic, Snapshot
from broker.stats.mqtt_channels import MOST_GROUPS, channel_name
from srtm.control import MqttLosses


def full_by_topic(held: Iterable[MqttTopic]) -> dict[str, dict[str, int]]:
    """{topic: ``MqttLosses.full`` of it}, without zeros. Of more than 64 channels those that lost most."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for holding in held:
        if holding.full:
            found[holding.topic][channel_name(holding)] = holding.full
    return {topic: _most(full) for topic, full in found.items()}


def _most(full: dict[str, int]) -> dict[str, int]:
    return full if len(full) <= MOST_GROUPS else dict(nlargest(MOST_GROUPS, full.items(), key=itemgetter(1)))


def losses_by_topic(snapshot: Snapshot) -> dict[str, MqttLosses]:
    """Of topics that lost something, also of such as are at other brokers alone."""
    found = {topic: MqttLosses(full=full) for topic, full in full_by_topic(snapshot.mqtt_topics).items()}
    for topic in snapshot.topics:
        refused, dropped = by_qos(topic.mqtt_refused), by_qos(topic.mqtt_dropped)
        if refused or dropped:
            full = found.get(topic.topic_name, MqttLosses()).full
            found[topic.topic_name] = MqttLosses(refused=refused, dropped=dropped, full=full)
    return found


def by_qos(counts: tuple[int, int, int]) -> list[int]:
    """As reports have it: empty if there are none."""
    return list(counts) if any(counts) else []
