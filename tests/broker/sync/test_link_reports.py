"""How messages came over links: what has changed is reported until the distributor has it."""

from __future__ import annotations

import msgspec

from broker.snapshot import LinkWay
from broker.sync.link_reports import LinkReports
from srtm.control import LinkLatency


def way(origin: str, count: int, network_ns: int | None = None) -> LinkWay:
    one = {"count": count, **{f"{name}_ns": 3_000_000 for name in ("p50", "p95", "p99", "p999", "max")}}
    kinds = dict.fromkeys(("access", "processing", "consumer_wait", "total"), one)
    latency = dict.fromkeys(("since_start", "last_60s", "recent"), kinds)
    return msgspec.convert({"origin": origin, "topic": "t", "network_ns": network_ns, "latency": latency}, LinkWay)


def told(reports: LinkReports, *ways: LinkWay) -> list[LinkLatency]:
    reports.note_ways(ways)
    return list(reports.unsent.values())


def test_a_way_is_reported_in_ms_with_the_network_of_its_link():
    (one,) = told(LinkReports(), way("a", 7, network_ns=150_000))
    assert (one.origin, one.topic, one.network_ms) == ("a", "t", 0.15)
    assert (one.last_60s.total.count, one.last_60s.total.p99_ms) == (7, 3.0)
    assert one.recent == one.since_start


def test_a_way_is_told_when_it_changes():
    reports = LinkReports()
    assert [one.origin for one in told(reports, way("a", 1), way("b", 1))] == ["a", "b"]
    reports.answered()
    assert [one.origin for one in told(reports, way("a", 2), way("b", 1))] == ["a"]
