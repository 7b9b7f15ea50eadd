"""Topics and brokers as rows of a list, and one screen of such a list: searched, sorted, cut. Pure but for reading."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from distributor.model.cluster import Topic
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.verdict.kept import PromiseVerdict, Verdict
from distributor.verdict.why import Why
from distributor.views.broker_view import BrokerWord, broker_word, capacity_view
from srtm.control import TopicReport
from srtm.errors import BadInput

MOST_ROWS = 500  # of one answer
_GRAVITY: dict[Verdict, int] = {"broken": 0, "unknown": 1, "kept": 2}
_WORRY: dict[BrokerWord, int] = {"dead": 0, "silent": 1, "draining": 2, "drained": 3, "expected": 4, "live": 5}


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in a list. Rates in msg/s, delays in ms."""

    name: str
    promise: Verdict
    since: str  # by the decision log, else when this leader first saw it so
    reason: str  # why a promise is broken; else what the verdict rests on
    remedy: str  # what would mend it; "": nothing to mend, or nothing is known
    percentile: float
    slo_ms: float
    latency_ms: float | None  # of the broker that decides, over the period that decides; null: not known
    rate: float
    burst: float
    demand: float  # that came in the last second told
    backlog: int  # messages that wait for tokens
    publishers: int
    brokers: int  # that have a share
    state: Literal["placed", "waiting", "partial"]
    layout: str | None  # what the layout loop is doing


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A broker in a list. Rates in msg/s."""

    name: str
    state: BrokerWord
    address: str
    allocated: float
    mcap: float
    mcap_assumed: bool
    topics: int  # that it reports
    rate: float  # of the shares in force there
    backlog: int  # messages that wait for tokens
    broken: int  # topics whose promise it breaks
    last_sync_s_ago: float | None


class TopicRows(msgspec.Struct, kw_only=True):
    """One screen of the list of topics. ``total``: rows that match; ``all``: rows that there are."""

    total: int
    all: int
    counts: dict[str, int]  # {promise: topics}
    rows: Sequence[TopicRow]


class BrokerRows(msgspec.Struct, kw_only=True):
    """One screen of the list of brokers, as ``TopicRows``."""

    total: int
    all: int
    counts: dict[str, int]  # {state: brokers}
    rows: Sequence[BrokerRow]


Reports = Mapping[str, TopicReport]  # {broker: its latest}


def topic_row(
    topic: Topic,
    promise: PromiseVerdict,
    why: Why | None,
    since: str,
    reports: Reports,
    demand: float,
    layout: str | None,
) -> TopicRow:
    """``why``: of a promise that is broken."""
    spec = topic.spec
    return TopicRow(
        name=topic.name,
        promise=promise.verdict,
        since=since,
        reason=promise.reason if why is None or why.cause == "nothing" else why.sentence,
        remedy="" if why is None else why.remedy,
        percentile=spec.slo.percentile,
        slo_ms=spec.slo.latency_ms,
        latency_ms=promise.decides.latency_ms,
        rate=spec.rate,
        burst=topic.burst,
        demand=demand,
        backlog=sum(report.backlog for report in reports.values()),
        publishers=len(spec.publishers),
        brokers=len(topic.leases.target),
        state=topic.placement.state,
        layout=layout,
    )


def broker_row(name: str, registry: Registry, syncing: SyncService, broken: int) -> BrokerRow:
    """``broken``: topics whose promise it breaks."""
    session, capacity = syncing.sessions.of(name), capacity_view(name, registry)
    reports = [] if session.reports is None else list(session.reports.topics.values())
    return BrokerRow(
        name=name,
        state=broker_word(name, registry, session.drain),
        address=registry.broker(name).tcp_address,
        allocated=capacity.allocated,
        mcap=capacity.mcap,
        mcap_assumed=capacity.mcap_assumed,
        topics=len(reports),
        rate=sum(report.rate for report in reports),
        backlog=sum(report.backlog for report in reports),
        broken=broken,
        last_sync_s_ago=registry.liveness.last_s_ago(name),
    )


_Row = TypeVar("_Row", TopicRow, BrokerRow)


def _known(value: float | None) -> float:
    return -math.inf if value is None else value


_TOPIC_ORDERS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "promise": lambda row: (_GRAVITY[row.promise], -_excess(row), row.name),
    "latency": lambda row: _known(row.latency_ms),
    "rate": lambda row: row.rate,
    "demand": lambda row: row.demand,
    "backlog": lambda row: row.backlog,
    "publishers": lambda row: row.publishers,
    "brokers": lambda row: row.brokers,
}
_BROKER_ORDERS: dict[str, Callable[[BrokerRow], Any]] = {
    "name": lambda row: row.name,
    "state": lambda row: (_WORRY[row.state], -_load(row), row.name),
    "load": lambda row: _load(row),
    "mcap": lambda row: row.mcap,
    "topics": lambda row: row.topics,
    "backlog": lambda row: row.backlog,
    "broken": lambda row: row.broken,
}


def _excess(row: TopicRow) -> float:
    """Latency over what is promised; without end where messages wait for tokens that never come."""
    if row.latency_ms is None:
        return math.inf if row.promise == "broken" else 0.0
    return row.latency_ms / row.slo_ms


def _load(row: BrokerRow) -> float:
    return row.allocated / row.mcap if row.mcap else 0.0


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What of a list is asked for. ``search``: part of the name. ``only``: a promise, or a broker's state."""

    offset: int = 0
    limit: int = 50
    sort: str = ""
    descending: bool = False
    search: str = ""
    only: str = ""


def topics_listed(rows: Sequence[TopicRow], query: Query) -> TopicRows:
    """Raises BadInput."""
    found = _found(rows, query, _TOPIC_ORDERS, "promise", lambda row: row.promise)
    return TopicRows(total=found.total, all=len(rows), counts=found.counts, rows=found.rows)


def brokers_listed(rows: Sequence[BrokerRow], query: Query) -> BrokerRows:
    """Raises BadInput."""
    found = _found(rows, query, _BROKER_ORDERS, "state", lambda row: row.state)
    return BrokerRows(total=found.total, all=len(rows), counts=found.counts, rows=found.rows)


class _Found(NamedTuple, Generic[_Row]):
    total: int
    counts: dict[str, int]
    rows: Sequence[_Row]


def _found(
    rows: Sequence[_Row],
    query: Query,
    orders: Mapping[str, Callable[[_Row], Any]],
    usual: str,
    kind: Callable[[_Row], str],
) -> _Found[_Row]:
    order = orders.get(query.sort or usual)
    if order is None:
        raise BadInput("sort", query.sort, f"must be one of {', '.join(orders)}")
    counts = Counter(kind(row) for row in rows)
    found = [row for row in rows if query.search in row.name and query.only in ("", kind(row))]
    found.sort(key=order, reverse=query.descending)
    return _Found(len(found), dict(counts), found[query.offset : query.offset + query.limit])
