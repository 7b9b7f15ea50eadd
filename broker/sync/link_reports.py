"""How messages came over links, reported as it changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.snapshot import LinkWay
from broker.sync.differences import Differences
from broker.sync.reports import NS_PER_MS, topic_latency
from srtm.control import LinkLatency


class LinkReports(Differences[tuple[str, str], LinkLatency]):
    """By the other broker and the topic."""

    def note_ways(self, ways: Iterable[LinkWay]) -> None:
        self.note({(way.origin, way.topic): _report(way) for way in ways})


def _report(way: LinkWay) -> LinkLatency:
    latency = way.latency
    return LinkLatency(
        origin=way.origin,
        topic=way.topic,
        network_ms=None if way.network_ns is None else way.network_ns / NS_PER_MS,
        last_60s=topic_latency(latency.last_60s),
        since_start=topic_latency(latency.since_start),
        recent=topic_latency(latency.recent) if latency.recent else None,
    )
