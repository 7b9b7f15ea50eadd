"""Reports of a topic by its brokers, with delays that a test chooses."""

from __future__ import annotations

import msgspec

from srtm.control import LatencyMs, TopicLatency, TopicReport


def delay(ms: float, count: int) -> LatencyMs:
    """A histogram of messages that all have the same delay."""
    return LatencyMs(count=count, p50_ms=ms, p95_ms=ms, p99_ms=ms, p999_ms=ms, max_ms=ms)


def period(access: float, processing: float, count: int = 1000, wait: float = 0.0) -> TopicLatency:
    """Delays in ms of so many messages; ``wait``: for a consumer."""
    return TopicLatency(
        access=delay(access, count),
        processing=delay(processing, count),
        consumer_wait=delay(wait, count),
        total=delay(access + processing + wait, count),
    )


def report(last: TopicLatency, whole: TopicLatency | None = None, **more: object) -> TopicReport:
    """Of topic "cars". ``whole``: since the start; None: as ``last``."""
    known = TopicReport(topic="cars", share_version=1, rate=100.0, burst=10.0, last_60s=last, since_start=whole or last)
    return msgspec.structs.replace(known, **more)
