"""How messages came over links: what has changed is reported until the distributor has it."""

from __future__ import annotations

import msgspec

from broker.snapshot import LinkWay
from broker.sync.link_reports import LinkReports


def way(origin: str, count: int, network_ns: int | None = None) -> LinkWay:
    one = {"count": count, **{f"{name}_ns": 3_000_000 for name in ("p50", "p95", "p99", "p999", "max")}}
    kinds = dict.fromkeys(("access", "processing", "consumer_wait", "total"), one)
    latency = dict.fromkeys(("since_start", "last_60s", "recent"), kinds)
    return msgspec.convert({"origin": origin, "topic": "t", "network_ns": network_ns, "latency": latency}, LinkWay)


def test_a_way_is_reported_in_ms_with_the_network_of_its_link():
    (told,) = LinkReports().unsent([way("a", 7, network_ns=150_000)])
    assert (told.origin, told.topic, told.network_ms) == ("a", "t", 0.15)
    assert (told.last_60s.total.count, told.last_60s.total.p99_ms) == (7, 3.0)
    assert told.recent == told.since_start


def test_what_the_distributor_has_is_not_sent_again_unless_it_lacks_it():
    reports = LinkReports()
    both = [way("a", 1), way("b", 1)]
    assert len(reports.unsent(both)) == 2
    assert len(reports.unsent(both)) == 2, "nobody has answered"
    reports.answered()
    assert [one.origin for one in reports.unsent([way("a", 2), way("b", 1)])] == ["a"]
    reports.answered()
    reports.send_again()
    assert len(reports.unsent(both)) == 2
