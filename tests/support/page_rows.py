"""Rows of the page's lists, for tests: usual values, but for those given."""

from __future__ import annotations

from distributor.page.rows import BrokerRow, TopicRow


def topic(name: str, **given: object) -> TopicRow:
    usual = {
        "promise": "kept", "since": "", "reason": "", "remedy": "", "percentile": 99.0,
        "slo_ms": 5.0, "latency_ms": 1.0,
        "rate": 10.0, "burst": 5.0, "demand": 1.0, "backlog": 0, "publishers": 1, "brokers": 1,
        "state": "placed", "layout": None,
    }  # fmt: skip
    return TopicRow(**{"name": name, **usual, **given})


def broker(name: str, **given: object) -> BrokerRow:
    usual = {
        "state": "live", "address": "h:1", "allocated": 1.0, "mcap": 10.0, "mcap_assumed": False, "topics": 1,
        "rate": 1.0, "backlog": 0, "broken": 0, "last_sync_s_ago": 0.1,
    }  # fmt: skip
    return BrokerRow(**{"name": name, **usual, **given})
