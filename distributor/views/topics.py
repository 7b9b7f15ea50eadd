"""What people and tools are shown: JSON documents made from the book and the reports (docs/architecture.md). Nothing
is changed here."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from distributor.model.broker_load import NO_LOAD
from distributor.model.cluster import Decision, Topic
from distributor.model.leases import MICRO
from distributor.placement.proposals import ShareChange
from distributor.prediction.explanation import Json, reason
from distributor.registry.registry import Registry
from distributor.sync.penalty import penalty_view, utc
from distributor.sync.service import Syncing
from srtm.control import Assignment, TopicReport
from srtm.errors import NotLeader, Unavailable
from srtm.topics.capacity import effective_mcap

_RETRY_S = 1.0  # for whoever has no place


def role_view(registry: Registry) -> Json:
    """``leader``: its URL, where another one leads and is known. ``instance``: the same under all of its addresses."""
    role = "leader" if registry.leads else "standby"
    return {"role": role, "leader": registry.leader_url, "instance": registry.config.instance}


def topic_view(topic: Topic, registry: Registry, syncing: Syncing) -> Json:
    """``TopicView``."""
    spec, placement = topic.spec, topic.placement
    told = _Told(syncing.histories.demand(topic.name), syncing.histories.access_delay_ms(topic.name))
    return {
        "name": topic.name,
        "version": topic.version,
        "rate": spec.rate,
        "burst": topic.burst,
        "slo": {"percentile": spec.slo.percentile, "latency_ms": spec.slo.latency_ms},
        "on_excess": spec.on_excess,
        "mode": spec.mode,
        "adaptation": dataclasses.asdict(spec.adaptation),
        "lease": spec.lease,
        "placement": spec.placement,
        "split": spec.split,
        "seed": spec.seed,
        "publishers": len(spec.publishers),
        "publishers_rate": spec.publishers.load,
        "state": placement.state,
        "reason": reason(topic.reasons),
        "relief": syncing.relief.episode(topic.name),  # null: none is under way
        "changes": changes_view(registry.share_changes.get(topic.name, ())),
        "channels": list(topic.channels),
        "drl_penalty": penalty_view(syncing.penalties.get(topic.name)),
        "brokers": [_part(topic, name, told, registry, syncing) for name in _with_part(topic)],
    }


class _Told(NamedTuple):
    """By broker, of the last second that its histories tell."""

    demand: dict[str, float]  # msg/s
    access_delay_ms: dict[str, float]  # mean


def _with_part(topic: Topic) -> list[str]:
    issued = [name for name, held in topic.leases.holdings.items() if held.bound.usable]
    return list(dict.fromkeys([*topic.placement.brokers, *topic.leases.target, *issued]))


def _part(topic: Topic, name: str, told: _Told, registry: Registry, syncing: Syncing) -> Json:
    demand = told.demand.get(name)
    holding, broker = topic.holding(name), registry.brokers.get(name)
    report = syncing.report(name, topic.name)
    return {
        "broker": name,
        "address": broker.tcp_address if broker else None,
        "publishers": len(topic.placement.ids_of.get(name, [])),
        "rate_assigned": topic.placement.assigned.get(name, 0.0),
        "rate_astray": sum(topic.astray.get(name, {}).values()),  # of publishers that belong to other brokers
        "rate": holding.share.rate / MICRO,
        "burst": holding.share.burst / MICRO,
        "rate_in_force": report.rate if report is not None else None,  # under gdrl brokers exchange what they have
        "burst_in_force": report.burst if report is not None else None,
        "demand": demand,  # msg/s; null: its mode asks for no histories, or nothing came lately
        "access_mean_ms": told.access_delay_ms.get(name),  # of the last second told; null: nothing came, or as above
        "fill_ratio": fill_ratio(holding.share.rate / MICRO, report, demand),
        "share_version": holding.version,
        "applied_version": holding.applied,
        "lab_service_time_ns": syncing.session(name).lab_service_ns,
        "throttling": msgspec.to_builtins(syncing.session(name).throttling),
        "renewed_s_ago": registry.liveness.last_s_ago(name) if registry.leads else None,  # null: only the leader knows
        "report": msgspec.to_builtins(report),
    }


def fill_ratio(issued: float, report: TopicReport | None, demand: float | None) -> float | None:
    """S / D of a share, rates in msg/s: of the rate that its broker says is in force, or else of the one ``issued``;
    None where nothing is wanted."""
    rate = issued if report is None else report.rate
    return rate / demand if demand else None


def changes_view(changes: Sequence[ShareChange]) -> list[Json]:
    """Of shares; newest first."""
    return [
        {
            "at": utc(one.wall_ns),
            "mode": one.mode,
            "reason": one.reason,
            "shares": {
                name: {"rate": share.rate / MICRO, "burst": share.burst / MICRO} for name, share in one.shares.items()
            },
        }
        for one in reversed(changes)
    ]


def publishers_view(topic: Topic, broker: str | None) -> Json:
    """All assignments as columns, or those of one broker; a publisher that has none is on ``null``."""
    columns, at = topic.spec.publishers, topic.placement.at.tolist()
    names = [*topic.placement.brokers, None]  # NOWHERE is the last
    keep = [i for i in range(len(columns)) if broker is None or names[at[i]] == broker]
    groups = ["", *columns.group_names]  # ALONE is -1
    return {
        "ids": [columns.ids[i] for i in keep],
        "brokers": [names[at[i]] for i in keep],
        "groups": [groups[columns.groups[i] + 1] for i in keep],
        "rates": columns.rates[keep].tolist(),
        "processes": ["periodic" if periodic else "poisson" for periodic in columns.periodic[keep].tolist()],
        "batches": columns.batches[keep].tolist(),
    }


def assignment(topic: Topic, publisher_id: str, registry: Registry) -> Assignment:
    """Where a publisher connects; one that the topic does not name is sent to a broker that has tokens. Raises
    Unavailable: one that is named has no place, and no tokens anywhere; of these NotLeader where only the leader can
    tell who is alive."""
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
        raise Unavailable(f"no broker is alive for publisher {publisher_id!r} of topic {topic.name!r}", 1.0)
    return candidates[zlib.crc32(publisher_id.encode()) % len(candidates)]


def _why(topic: Topic, broker: str, declared: bool) -> str:
    if declared:
        return next((line for line in topic.reasons if line.startswith(f"{broker}: ")), "")
    return "the topic does not name this publisher: it is charged to the share of that broker"


def decisions_view(decisions: Sequence[Decision]) -> list[Json]:
    """Newest first."""
    return [{"number": one.number, "at": utc(one.wall_ns), "lines": list(one.lines)} for one in reversed(decisions)]


def broker_view(name: str, registry: Registry, syncing: Syncing) -> Json:
    """Raises NotFound."""
    broker = registry.broker(name)
    load = registry.loads.get(name, NO_LOAD)
    allocated = load.allocated
    figures = registry.capacities.get(name, ())
    mcap = effective_mcap(broker.mcap, figures, load.promised())
    return {
        "name": name,
        "incarnation": broker.incarnation,
        "srtm_version": broker.srtm_version,
        "tcp_address": broker.tcp_address,
        "http_address": broker.http_address,
        "mcap": mcap,  # for the hardest of the promises that it has
        "mcap_stated": broker.mcap,
        "capacities": [one.to_json() for one in figures],
        "lab_service_time_ns": syncing.session(name).lab_service_ns,  # 0: not in the laboratory
        "allocated": allocated,
        "rcap": max(0.0, mcap - allocated) if mcap else None,  # null: not stated, no known limit
        "alive": registry.is_alive(name) if registry.leads else None,  # null: only the leader knows
        "dead": broker.dead,
        "accepting": broker.accepting,
        "draining": name in registry.draining,
        "drain": msgspec.to_builtins(syncing.session(name).drain),
        "throttling": msgspec.to_builtins(syncing.session(name).throttling),
        "machine": msgspec.to_builtins(syncing.session(name).machine),  # null: not heard here, or it does not say
        "last_sync_s_ago": registry.liveness.last_s_ago(name),
        "reports": msgspec.to_builtins(list(syncing.reports.get(name, {}).values())),
    }
