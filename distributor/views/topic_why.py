"""What ``distributor.verdict.why`` is to know of a topic, from the registry and the brokers' reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from distributor.model.cluster import Topic
from distributor.model.leases import MICRO
from distributor.model.share_log import ShareChange
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.sync.sessions import Sessions
from distributor.verdict.why import BrokerPart, TopicFigures, Why, why
from distributor.views.broker_view import CapacityView, broker_word, capacity_view, is_away
from distributor.views.topic_view import brokers_with_part
from srtm.errors import NotLeader

_WINDOW_NS = 60_000_000_000


CapacityOf = Callable[[str], CapacityView]  # of a broker by its name


def topic_why(topic: Topic, registry: Registry, syncing: SyncService, capacity_of: CapacityOf | None = None) -> Why:
    """Why a topic is late. Raises NotLeader: brokers report to the leader.

    ``capacity_of``: from who asks for many topics and remembers, because it goes through all topics of a broker.
    """
    if not registry.leads:
        raise NotLeader(registry.leader_url)
    spec = topic.spec
    arrivals = syncing.histories.arrival_rates(topic.name)
    capacity_of = capacity_of or partial(capacity_view, registry=registry)
    return why(
        TopicFigures(
            name=topic.name,
            rate=spec.rate,
            burst=topic.burst,
            slo=spec.slo,
            mode=spec.mode,
            missing_rate=topic.placement.missing,
            promise=syncing.sessions.promise(topic),
            parts=[
                _part(topic, name, arrivals.get(name), registry, syncing.sessions, capacity_of)
                for name in _brokers(topic, syncing)
            ],
        )
    )


def _brokers(topic: Topic, syncing: SyncService) -> list[str]:
    """Brokers that have a part in a topic, or messages of it."""
    return list(dict.fromkeys([*brokers_with_part(topic), *syncing.sessions.heard(topic.name)]))


def _part(
    topic: Topic,
    name: str,
    arrival_rate: float | None,
    registry: Registry,
    sessions: Sessions,
    capacity_of: CapacityOf,
) -> BrokerPart:
    report, session, share = sessions.report(name, topic.name), sessions.of(name), topic.holding(name).share
    capacity = capacity_of(name) if name in registry.brokers else None
    return BrokerPart(
        broker=name,
        state=broker_word(name, registry, session.drain) if capacity else "forgotten",
        is_away=is_away(name, registry),
        publishers=len(topic.placement.ids_of.get(name, [])),
        rate_assigned=topic.placement.assigned.get(name, 0.0),
        rate=share.rate / MICRO if report is None else report.rate,
        burst=share.burst / MICRO if report is None else report.burst,
        least_rate=least_rate(name, registry.share_changes.get(topic.name, ()), registry.state.wall_ns()),
        arrival_rate=arrival_rate,
        misplaced_rate=sum(topic.misplaced.get(name, {}).values()),
        misplaced=session.misplaced.ids(topic),
        pinned=registry.pins.at(topic.name, name),
        allocated=capacity.allocated if capacity else 0.0,
        mcap=capacity.mcap if capacity else 0.0,
        throttling=session.throttling,
        report=report,
    )


def least_rate(broker: str, changes: Sequence[ShareChange], now_ns: int) -> float | None:
    """The least rate that the shares of ``broker`` had over the last 60 s, msg/s. ``changes``: newest last.

    None: it is not known.
    """
    since_ns = now_ns - _WINDOW_NS
    known = [change.shares.get(broker) for change in changes]
    first = max((at for at, change in enumerate(changes) if change.wall_ns <= since_ns), default=0)
    return min((share.rate / MICRO if share else 0.0 for share in known[first:]), default=None)
