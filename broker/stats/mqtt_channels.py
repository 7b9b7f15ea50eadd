"""What MQTT's sessions and shared groups hold, as nsqd's tools can show it: in each topic one channel ``mqtt``, and one
for each of the busiest groups. Pure."""

from __future__ import annotations

from collections import defaultdict
from heapq import nlargest

import msgspec

from broker.snapshot import Channel, Latencies, LatencyNs, LatencyWindows, MqttTopic, Snapshot, Topic

CHANNEL = "mqtt"
MOST_GROUPS = 64  # that are shown of a topic

_NONE = LatencyNs(count=0, p50_ns=0, p95_ns=0, p99_ns=0, p999_ns=0, max_ns=0)
_NEVER = Latencies(access=_NONE, processing=_NONE, consumer_wait=_NONE, total=_NONE)


def with_mqtt_channels(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the channels in each topic of which sessions or groups were given something, unless an NSQ
    consumer has made one named ``mqtt``. A topic that is at other brokers alone comes in addition, without messages of
    its own."""
    if not snapshot.mqtt_topics:
        return snapshot
    held = defaultdict(list)
    for holding in snapshot.mqtt_topics:
        held[holding.topic].append(holding)
    here = [_with_channels(topic, held.pop(topic.topic_name, [])) for topic in snapshot.topics]
    elsewhere = [_with_channels(_elsewhere(name), of_topic) for name, of_topic in held.items()]
    return msgspec.structs.replace(snapshot, topics=here + elsewhere)


def channel_name(held: MqttTopic) -> str:
    return held.group or CHANNEL


def _with_channels(topic: Topic, held: list[MqttTopic]) -> Topic:
    if not held:
        return topic
    groups = [holding for holding in held if holding.group]
    if len(groups) > MOST_GROUPS:
        busiest = nlargest(MOST_GROUPS, groups, key=lambda holding: holding.messages)
        held = [holding for holding in held if not holding.group] + sorted(busiest, key=channel_name)
    taken = {channel.channel_name for channel in topic.channels}
    made = [_channel(holding) for holding in held if channel_name(holding) not in taken]
    return msgspec.structs.replace(topic, channels=[*topic.channels, *made])


def _channel(held: MqttTopic) -> Channel:
    return Channel(
        channel_name=channel_name(held),
        paused=False,
        depth=held.depth,
        in_flight_count=held.in_flight,
        deferred_count=0,
        message_count=held.messages,
        requeue_count=0,
        timeout_count=0,
        client_count=held.holders,
        dropped=held.dropped,
    )


def _elsewhere(name: str) -> Topic:
    return Topic(
        topic_name=name,
        paused=False,
        held=False,
        depth=0,
        message_count=0,
        message_bytes=0,
        received=0,
        released=0,
        rejected=0,
        channels=[],
        bucket=None,
        latency=LatencyWindows(since_start=_NEVER, last_60s=_NEVER),
    )
