"""What a broker tells the distributor of its topics. Pure: a snapshot in, reports out."""

from __future__ import annotations

from collections.abc import Mapping

from broker.snapshot import Bucket, Latencies, LatencyNs, Snapshot, Topic
from srtm.control import LatencyMs, TopicLatency, TopicReport

MICRO = 1_000_000
NS_PER_MS = 1e6


def topic_reports(snapshot: Snapshot, applied: Mapping[str, int]) -> list[TopicReport]:
    """Managed topics (``applied``: {topic: share version in force}) and others that have had traffic."""
    return [
        topic_report(topic, applied.get(topic.topic_name, 0))
        for topic in snapshot.topics
        if topic.topic_name in applied or topic.received > 0
    ]


def topic_report(topic: Topic, share_version: int) -> TopicReport:
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
        rate=topic.bucket.rate_micro / MICRO if topic.bucket else 0.0,
        burst=topic.bucket.burst_micro / MICRO if topic.bucket else 0.0,
        channels=[channel.channel_name for channel in topic.channels],
        consumed=[channel.channel_name for channel in topic.channels if channel.client_count],
        last_60s=topic_latency(topic.latency.last_60s),
        since_start=topic_latency(topic.latency.since_start),
        recent=topic_latency(topic.latency.recent) if topic.latency.recent else None,
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
