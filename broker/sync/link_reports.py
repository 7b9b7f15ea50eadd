"""How messages came over links, reported as it changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.snapshot import LinkWay
from broker.sync.reports import NS_PER_MS, topic_latency
from srtm.control import LinkLatency


class LinkReports:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str], LinkLatency] = {}  # to the distributor
        self._sent: list[LinkLatency] = []

    def unsent(self, ways: Iterable[LinkWay]) -> list[LinkLatency]:
        """Those that differ from what the distributor knows; it knows them once ``answered``."""
        self._sent = [each for each in map(_report, ways) if self._known.get((each.origin, each.topic)) != each]
        return self._sent

    def answered(self) -> None:
        """The latest request was answered."""
        self._known.update(((each.origin, each.topic), each) for each in self._sent)
        self._sent = []

    def send_again(self) -> None:
        """The distributor lacks what was reported."""
        self._known.clear()


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
