"""What MQTT's sessions hold, as nsqd's tools can show it: one channel ``mqtt`` of each topic. Pure."""

from __future__ import annotations

import msgspec

from broker.snapshot import Channel, Latencies, LatencyNs, LatencyWindows, MqttTopic, Snapshot, Topic

CHANNEL = "mqtt"

_NONE = LatencyNs(count=0, p50_ns=0, p95_ns=0, p99_ns=0, p999_ns=0, max_ns=0)
_NEVER = Latencies(access=_NONE, processing=_NONE, consumer_wait=_NONE, total=_NONE)


def with_mqtt_channels(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the channel in each topic of which sessions were given something, unless an NSQ consumer has
    made one of its name. A topic that is at other brokers alone comes in addition, without messages of its own."""
    held = {one.topic: one for one in snapshot.mqtt_topics}
    if not held:
        return snapshot
    here = [_with_channel(topic, held.pop(topic.topic_name, None)) for topic in snapshot.topics]
    elsewhere = [_with_channel(_elsewhere(name), of_topic) for name, of_topic in held.items()]
    return msgspec.structs.replace(snapshot, topics=here + elsewhere)


def _with_channel(topic: Topic, held: MqttTopic | None) -> Topic:
    if held is None or any(channel.channel_name == CHANNEL for channel in topic.channels):
        return topic
    channel = Channel(
        channel_name=CHANNEL,
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
    return msgspec.structs.replace(topic, channels=[*topic.channels, channel])


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
