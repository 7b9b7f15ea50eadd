"""The topic reports of this broker: all of them, then deltas. Pure: snapshots in, reports out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from broker.snapshot import Bucket, Channel, Latencies, LatencyNs, Topic, decode_topic
from broker.stats.mqtt_losses import by_qos
from broker.sync.remaining_messages import holds_messages
from srtm.control import ChannelQueue, LatencyMs, SyncRequest, TopicLatency, TopicReport
from srtm.protocol import RETAINED_TOPIC, is_link_channel

MICRO = 1_000_000
NS_PER_MS = 1e6


class _Seen(NamedTuple):
    """A topic in a snapshot."""

    name: str
    share_version: int | None  # in force; None: not managed
    report: TopicReport


class Reports:
    """Note what is so now, add it to a request, then say whether the request was answered; one request at a time.

    Only an answer says what the distributor has. Every request carries all that changed since the latest answered
    request. So it does not matter which of the others arrived, nor when.
    """

    def __init__(self) -> None:
        self._raw: Sequence[msgspec.Raw] = ()  # of one snapshot, which they keep in memory
        self._seen: list[_Seen] = []  # in the same order
        self._now: dict[str, TopicReport] = {}
        self._number = 0  # of the latest request
        self._known = 0  # number of the request whose reports the distributor has, but for those in ``_changed``
        self._changed: set[str] = set()

    @property
    def are_known(self) -> bool:
        """Whether the distributor that answered last has the reports, and takes deltas."""
        return self._known > 0

    def note(self, topics: Sequence[msgspec.Raw], applied: Mapping[str, int]) -> None:
        """Take all topics as the engine shows them. ``applied`` is {topic: share version in force}.

        All are reported, also those without traffic: whoever looks up a topic is to find its channels and messages.
        """
        self._seen = [
            seen
            if seen is not None and raw == before and applied.get(seen.name) == seen.share_version
            else _look_at(raw, applied)
            for raw, before, seen in zip_longest(topics, self._raw[: len(topics)], self._seen[: len(topics)])
        ]
        self._raw = topics
        shown = (seen for seen in self._seen if seen.name != RETAINED_TOPIC)
        before, self._now = self._now, {seen.name: seen.report for seen in shown}
        self._changed.update(name for name, report in self._now.items() if before.get(name) != report)
        self._changed.update(before.keys() - self._now.keys())

    def differ(self, name: str, topics: Sequence[msgspec.Raw]) -> bool:
        """Whether topic ``name`` came, went or has other channels since it was noted. ``topics`` as in ``note_one``."""
        if name == RETAINED_TOPIC:
            return False
        before, now = self._now.get(name), next(map(decode_topic, topics), None)
        if before is None or now is None:
            return (before is None) != (now is None)
        return before.channels != _names(_shown(now.channels))

    def note_one(self, name: str, topics: Sequence[msgspec.Raw], applied: Mapping[str, int]) -> None:
        """Take topic ``name`` only, which is in ``topics`` unless it is gone; all others are as noted last."""
        if name == RETAINED_TOPIC:
            return
        before, now = self._now.pop(name, None), next((_look_at(raw, applied).report for raw in topics), None)
        if now is not None:
            self._now[name] = now
        if now != before:
            self._changed.add(name)

    def add_to(self, request: SyncRequest) -> SyncRequest:
        """The next request, with the reports."""
        self._number += 1
        if not self._known:
            return msgspec.structs.replace(request, number=self._number, topics=list(self._now.values()))
        names = sorted(self._changed)
        return msgspec.structs.replace(
            request,
            number=self._number,
            topics=[self._now[name] for name in names if name in self._now],
            reports_since=self._known,
            gone=[name for name in names if name not in self._now],
        )

    def answered(self, reported: int) -> bool:
        """The latest request was answered; ``reported`` is the request number in the answer.

        Returns False if the distributor lacks reports that it was believed to have: the next request has all of them.
        """
        were_known, self._known = self.are_known, self._number if reported == self._number else 0
        self._changed.clear()
        return self.are_known or not were_known


def _look_at(raw: msgspec.Raw, applied: Mapping[str, int]) -> _Seen:
    topic = decode_topic(raw)
    version = applied.get(topic.topic_name)
    return _Seen(topic.topic_name, version, topic_report(topic, version or 0))


def topic_report(topic: Topic, share_version: int) -> TopicReport:
    shown = _shown(topic.channels)
    consumed = [channel for channel in shown if channel.client_count]
    return TopicReport(
        topic=topic.topic_name,
        share_version=share_version,
        received=topic.received,
        released=topic.released,
        rejected=topic.rejected,
        delayed=topic.bucket.delayed if topic.bucket else 0,
        undeclared=topic.bucket.undeclared if topic.bucket else 0,
        backlog=topic.bucket.backlog if topic.bucket else 0,
        largest_backlog=_largest_backlog(topic.bucket),
        holds_messages=holds_messages(topic),
        rate=topic.bucket.rate_micro / MICRO if topic.bucket else 0.0,
        burst=topic.bucket.burst_micro / MICRO if topic.bucket else 0.0,
        channels=_names(shown),
        consumed=_names(consumed),
        consumers=[channel.client_count for channel in consumed],
        last_60s=topic_latency(topic.latency.last_60s),
        since_start=topic_latency(topic.latency.since_start),
        recent=topic_latency(topic.latency.recent) if topic.latency.recent else None,
        depth=max(0, topic.depth - (topic.bucket.backlog if topic.bucket else 0)),
        network_ms=topic.network_ns / NS_PER_MS if topic.network_ns is not None else None,
        mqtt_refused=by_qos(topic.mqtt_refused),
        mqtt_dropped=by_qos(topic.mqtt_dropped),
        queues=[_queue(channel) for channel in topic.channels if channel.depth or channel.in_flight_count],
    )


def _shown(channels: Iterable[Channel]) -> list[Channel]:
    """Without those of links, which other brokers have none of."""
    return [channel for channel in channels if not is_link_channel(channel.channel_name)]


def _names(channels: Iterable[Channel]) -> list[str]:
    return [channel.channel_name for channel in channels]


def _queue(channel: Channel) -> ChannelQueue:
    return ChannelQueue(
        channel=channel.channel_name,
        depth=channel.depth,
        in_flight=channel.in_flight_count,
        consumers=channel.client_count,
        paused=channel.paused,
    )


def _largest_backlog(bucket: Bucket | None) -> float:
    return bucket.largest_backlog if bucket else 0.0


def topic_latency(latencies: Latencies) -> TopicLatency:
    return TopicLatency(
        access=latency_ms(latencies.access),
        processing=latency_ms(latencies.processing),
        consumer_wait=latency_ms(latencies.consumer_wait),
        total=latency_ms(latencies.total),
    )


def latency_ms(latency: LatencyNs) -> LatencyMs:
    return LatencyMs(
        count=latency.count,
        p50_ms=latency.p50_ns / NS_PER_MS,
        p95_ms=latency.p95_ns / NS_PER_MS,
        p99_ms=latency.p99_ns / NS_PER_MS,
        p999_ms=latency.p999_ns / NS_PER_MS,
        max_ms=latency.max_ns / NS_PER_MS,
    )
