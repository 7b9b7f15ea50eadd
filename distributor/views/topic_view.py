"""A topic as clients and operators see it: the types are the JSON documents and their OpenAPI schemas.

Reads the registry and the brokers' reports; changes nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from distributor.model.cluster import Decision, Topic
from distributor.model.leases import MICRO
from distributor.model.share_log import ShareChange
from distributor.prediction.explanation import Json, reason, urgent_reasons
from distributor.registry.registry import Registry
from distributor.sync.figures import MeasuredPenalty, utc
from distributor.sync.service import SyncService
from distributor.verdict.kept import Judged, Verdict
from distributor.views.broker_view import BrokerWord, broker_word, is_away
from srtm.control import Assignment, MqttLosses, ProposedShare, Throttling, TopicReport
from srtm.errors import NotLeader, Unavailable
from srtm.text import figure
from srtm.topics.adaptation import Adaptation
from srtm.topics.mqtt_names import MqttNames
from srtm.topics.publishers import coordinates
from srtm.topics.spec import Slo

_RETRY_S = 1.0  # for a publisher that has no broker


class TopicPart(msgspec.Struct, kw_only=True):
    """A topic on one broker. Rates in msg/s, bursts in messages."""

    broker: str
    broker_state: BrokerWord | None  # null: it was forgotten
    address: str | None
    publishers: int
    rate_assigned: float
    rate_astray: float  # of publishers that are assigned to other brokers
    rate: float
    burst: float
    rate_in_force: float | None  # as the broker reports it: under gdrl brokers exchange what they have
    burst_in_force: float | None
    demand: float | None  # that came in the last second told; null: nothing is asked for, or nothing came lately
    access_mean_ms: float | None  # of that second, at the token rate in force; null: nothing came, or as ``demand``
    fill_ratio: float | None
    traffic_s_ago: float | None  # age of these three; steady traffic is told again after 300 s
    share_version: int
    applied_version: int
    lab_service_time_ns: int  # 0: not in the laboratory
    throttling: Throttling | None
    renewed_s_ago: float | None  # null: only the leader knows
    report: TopicReport | None
    report_s_ago: float | None  # age of ``report``; null: there is none


class ChangeView(msgspec.Struct, kw_only=True):
    """A change of shares by the adaptor."""

    at: str
    mode: str
    reason: str
    shares: dict[str, ProposedShare]


class PenaltyView(msgspec.Struct, kw_only=True):
    """The DRL penalty of one window: access delay of the shares less that of one bucket, in ms."""

    at: str
    messages: int
    seconds: float
    sum_ms: float
    mean_ms: float
    p99_ms: float
    one_mean_ms: float
    one_p99_ms: float


class TopicView(msgspec.Struct, kw_only=True):
    """A topic, its shares and the brokers' latest reports."""

    name: str
    version: int  # of what was submitted
    placement_version: int  # of the assignment of publishers
    rate: float
    burst: float
    slo: Slo
    on_excess: Literal["delay", "reject"]
    mode: str
    adaptation: Adaptation
    lease: str
    placement: str
    split: str
    seed: int
    mqtt: MqttNames
    publishers: int
    publishers_rate: float
    state: Literal["placed", "waiting", "partial"]
    reason: str
    promise: Verdict  # over the last 60 s; where they have too few messages, since the brokers' start
    promise_reason: str
    promise_last_60s: Judged
    promise_since_start: Judged
    layout: str | None  # what the layout loop is doing, and how its last search ended; null: nothing
    mqtt_losses: dict[str, MqttLosses]  # {broker: what MQTT's clients lost there}, where they lost any
    pinned: int  # publishers that do not move when told
    changes: list[ChangeView]  # newest first
    channels: list[str]
    drl_penalty: PenaltyView | None  # null: it is not known, or there is none
    brokers: list[TopicPart]
    explanation: Json | UnsetType = UNSET  # of a submission
    fitting: Json | UnsetType = UNSET  # of a submission


class PublisherColumns(msgspec.Struct, kw_only=True):
    """Publishers and their brokers, as columns of equal length."""

    ids: list[str]
    brokers: list[str | None]  # null: none
    groups: list[str]  # "": none
    rates: list[float]
    processes: list[Literal["poisson", "periodic"]]
    batches: list[int]
    contracts: list[str]  # namespaces; "": the topic's
    pinned: list[bool]  # true: it does not move when told
    latitudes: list[float | None] | UnsetType = UNSET  # degrees; left out where nobody said where a publisher is
    longitudes: list[float | None] | UnsetType = UNSET


class DecisionView(msgspec.Struct, kw_only=True):
    """An entry of the decision log."""

    number: int
    at: str
    lines: list[str]


def topic_view(topic: Topic, registry: Registry, syncing: SyncService) -> TopicView:
    spec, placement = topic.spec, topic.placement
    promise = syncing.sessions.promise(topic)
    histories = syncing.histories
    traffic = _Traffic(
        histories.arrival_rates(topic.name), histories.access_delay_ms(topic.name), histories.ages_s(topic.name)
    )
    return TopicView(
        name=topic.name,
        version=topic.version,
        placement_version=topic.assignment_version,
        rate=spec.rate,
        burst=topic.burst,
        slo=spec.slo,
        on_excess=spec.on_excess,
        mode=spec.mode,
        adaptation=spec.adaptation,
        lease=spec.lease,
        placement=spec.placement,
        split=spec.split,
        seed=spec.seed,
        mqtt=spec.mqtt,
        publishers=len(spec.publishers),
        publishers_rate=spec.publishers.load,
        state=placement.state,
        reason=_reason(topic, registry, syncing),
        promise=promise.verdict,
        promise_reason=promise.reason,
        promise_last_60s=promise.last_60s,
        promise_since_start=promise.since_start,
        layout=syncing.layouts.states.get(topic.name),
        mqtt_losses=syncing.sessions.mqtt_losses(topic.name),
        pinned=len(registry.pins.of(topic.name)),
        changes=_changes(registry.share_changes.get(topic.name, ())),
        channels=list(topic.channels),
        drl_penalty=_penalty(syncing.penalties.get(topic.name)),
        brokers=[_part(topic, name, traffic, registry, syncing) for name in brokers_with_part(topic)],
    )


def _reason(topic: Topic, registry: Registry, syncing: SyncService) -> str:
    """What an operator must know first of the placement as it is now."""
    placement = topic.placement
    away = [
        f"{name} is {broker_word(name, registry, syncing.sessions.of(name).drain)}, and "
        f"{len(placement.ids_of[name]):,} publishers belong there"
        for name in placement.brokers
        if placement.ids_of.get(name) and is_away(name, registry)
    ]
    urgent = [*away, *urgent_reasons(topic.reasons)]
    placed = f"{len(topic.spec.publishers):,} publishers send {figure(topic.spec.publishers.load, 6)} msg/s: placed on "
    return "; ".join(urgent) or f"{placed}{len(placement.brokers)} of {len(registry.brokers)} brokers"


class _Traffic(NamedTuple):
    """By broker, in the last second that its histories cover."""

    demand: dict[str, float]  # msg/s
    access_delay_ms: dict[str, float]  # mean
    age_s: dict[str, float]


def brokers_with_part(topic: Topic) -> list[str]:
    """Brokers that have publishers of a topic, or tokens, or may have some left."""
    issued = [name for name, held in topic.leases.holdings.items() if held.bound.is_usable]
    return list(dict.fromkeys([*topic.placement.brokers, *topic.leases.target, *issued]))


def _part(topic: Topic, name: str, traffic: _Traffic, registry: Registry, syncing: SyncService) -> TopicPart:
    demand = traffic.demand.get(name)
    holding, broker, session = topic.holding(name), registry.brokers.get(name), syncing.sessions.of(name)
    report = syncing.sessions.report(name, topic.name)
    return TopicPart(
        broker=name,
        broker_state=broker_word(name, registry, session.drain) if broker else None,
        address=broker.tcp_address if broker else None,
        publishers=len(topic.placement.ids_of.get(name, [])),
        rate_assigned=topic.placement.assigned.get(name, 0.0),
        rate_astray=sum(topic.misplaced.get(name, {}).values()),
        rate=holding.share.rate / MICRO,
        burst=holding.share.burst / MICRO,
        rate_in_force=report.rate if report is not None else None,
        burst_in_force=report.burst if report is not None else None,
        demand=demand,
        access_mean_ms=traffic.access_delay_ms.get(name),
        fill_ratio=fill_ratio(holding.share.rate / MICRO, report, demand),
        traffic_s_ago=traffic.age_s.get(name),
        share_version=holding.version,
        applied_version=holding.applied,
        lab_service_time_ns=session.lab_service_ns,
        throttling=session.throttling,
        renewed_s_ago=registry.liveness.last_s_ago(name) if registry.leads else None,
        report=report,
        report_s_ago=session.reported_s_ago() if report is not None else None,
    )


def fill_ratio(issued: float, report: TopicReport | None, demand: float | None) -> float | None:
    """Token rate / demand of a share, rates in msg/s. The token rate is the one that the broker reports to be in force,
    or else the one ``issued``. None: there is no demand."""
    rate = issued if report is None else report.rate
    return rate / demand if demand else None


def _changes(changes: Sequence[ShareChange]) -> list[ChangeView]:
    return [
        ChangeView(
            at=utc(change.wall_ns),
            mode=change.mode,
            reason=change.reason,
            shares={
                name: ProposedShare(rate=share.rate / MICRO, burst=share.burst / MICRO)
                for name, share in change.shares.items()
            },
        )
        for change in reversed(changes)
    ]


def _penalty(measured: MeasuredPenalty | None) -> PenaltyView | None:
    if measured is None:
        return None
    penalty = measured.penalty
    return PenaltyView(
        at=utc(measured.wall_ns),
        messages=penalty.messages,
        seconds=penalty.seconds,
        sum_ms=penalty.sum_ms,
        mean_ms=penalty.mean_ms,
        p99_ms=penalty.p99_ms,
        one_mean_ms=penalty.one_mean_ms,
        one_p99_ms=penalty.one_p99_ms,
    )


def publishers_view(topic: Topic, registry: Registry, broker: str | None) -> PublisherColumns:
    """All assignments, or those of one broker."""
    columns, at = topic.spec.publishers, topic.placement.at.tolist()
    names = [*topic.placement.brokers, None]  # NOWHERE is the last
    keep = [i for i in range(len(columns)) if broker is None or names[at[i]] == broker]
    groups, pinned = ["", *columns.group_names], registry.pins.of(topic.name)  # ALONE is -1
    return PublisherColumns(
        ids=[columns.ids[i] for i in keep],
        brokers=[names[at[i]] for i in keep],
        groups=[groups[columns.groups[i] + 1] for i in keep],
        rates=columns.rates[keep].tolist(),
        processes=["periodic" if periodic else "poisson" for periodic in columns.periodic[keep].tolist()],
        batches=columns.batches[keep].tolist(),
        contracts=[columns.contract_of(i) for i in keep],
        pinned=[columns.ids[i] in pinned for i in keep],
        **coordinates(columns.points_of(keep)),
    )


def assignment(topic: Topic, publisher_id: str, registry: Registry) -> Assignment:
    """The broker that a publisher connects to. A publisher that the topic does not declare gets one with tokens.

    Raises Unavailable (no broker has room, or is alive), NotLeader (only the leader knows which brokers are alive).
    """
    declared = publisher_id in topic.spec.publishers.positions
    own = topic.placement.broker_of(publisher_id)
    if declared and own is None:
        if not registry.leads:
            raise NotLeader(registry.leader_url)
        why = reason(topic.reasons) or "none has room"
        raise Unavailable(f"no broker for publisher {publisher_id!r} of topic {topic.name!r}: {why}", _RETRY_S)
    name = own if own in registry.brokers else _substitute(topic, publisher_id, registry)
    return Assignment(
        topic=topic.name,
        publisher_id=publisher_id,
        declared=declared,
        broker=name,
        address=registry.brokers[name].tcp_address,
        version=topic.assignment_version,
        reason=_why(topic, name, declared),
    )


def _substitute(topic: Topic, publisher_id: str, registry: Registry) -> str:
    if not registry.leads:
        raise NotLeader(registry.leader_url)
    live = registry.live() - registry.draining
    candidates = sorted(live.intersection(topic.leases.target) or live)
    if not candidates:
        raise Unavailable(f"no broker is alive for publisher {publisher_id!r} of topic {topic.name!r}", _RETRY_S)
    return candidates[zlib.crc32(publisher_id.encode()) % len(candidates)]


def _why(topic: Topic, broker: str, declared: bool) -> str:
    if declared:
        return next((line for line in topic.reasons if line.startswith(f"{broker}: ")), "")
    return "the topic does not name this publisher: it is charged to the share of that broker"


def decisions_view(decisions: Sequence[Decision]) -> list[DecisionView]:
    """Newest first."""
    return [
        DecisionView(number=decision.number, at=utc(decision.wall_ns), lines=list(decision.lines))
        for decision in reversed(decisions)
    ]
