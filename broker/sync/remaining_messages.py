"""The messages that a broker has not delivered yet, and what keeps it from delivering them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from broker.snapshot import Channel, Snapshot, Topic
from srtm.control import MessagesLeft

_MAX_OBSTACLES = 10


def messages_left(snapshot: Snapshot) -> MessagesLeft:
    """Over all topics and channels."""
    channels = [channel for topic in snapshot.topics for channel in topic.channels]
    waiting = sum(_waiting(topic) for topic in snapshot.topics)
    return MessagesLeft(
        queued=sum(topic.depth for topic in snapshot.topics) - waiting + sum(channel.depth for channel in channels),
        in_flight=sum(channel.in_flight_count for channel in channels),
        deferred=sum(channel.deferred_count for channel in channels),
        waiting=waiting,
    )


def obstacles(snapshot: Snapshot) -> list[str]:
    """What a person has to change before all messages can be delivered: the first few."""
    found = [line for topic in snapshot.topics for line in _obstacles_of(topic)]
    more = len(found) - _MAX_OBSTACLES
    return found[:_MAX_OBSTACLES] + ([f"and {more} more"] if more > 0 else [])


def topics_left(snapshot: Snapshot) -> set[str]:
    """Topics that still have messages here."""
    return {topic.topic_name for topic in snapshot.topics if holds_messages(topic)}


def holds_messages(topic: Topic) -> bool:
    """Whether messages wait or are in flight in ``topic``, in memory or on disk."""
    return topic.depth > 0 or any(map(_holds, topic.channels))


def _obstacles_of(topic: Topic) -> Iterator[str]:
    waiting = _waiting(topic)
    if waiting and topic.bucket and not topic.bucket.rate_micro:
        yield f"topic {topic.topic_name} has no tokens here"
    if topic.depth > waiting:
        if not topic.channels:
            yield f"topic {topic.topic_name} has no channel"
        elif topic.paused:
            yield f"topic {topic.topic_name} is paused"
    for channel in filter(_holds, topic.channels):
        if channel.paused:
            yield f"channel {topic.topic_name}:{channel.channel_name} is paused"
        elif not channel.client_count:
            yield f"channel {topic.topic_name}:{channel.channel_name} has no consumer"


def _waiting(topic: Topic) -> int:
    """Messages waiting for tokens, a part of ``depth``."""
    return topic.bucket.backlog if topic.bucket else 0


def _holds(channel: Channel) -> bool:
    return bool(channel.depth or channel.in_flight_count or channel.deferred_count)
