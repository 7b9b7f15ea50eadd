"""A broker as clients and operators see it, its capacity, and this distributor's own health."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from distributor.model.broker_lifecycle import BrokerState
from distributor.model.broker_load import NO_LOAD
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.control import BrokerMachine, DrainProgress, Throttling, TopicReport
from srtm.token_bucket.assumed_capacity import assumed_mcap
from srtm.topics.capacity import effective_mcap
from srtm.version import __version__

BrokerWord = Literal["live", "expected", "silent", "draining", "drained", "dead"]
_WORDS: dict[BrokerState, BrokerWord] = {
    BrokerState.LIVE: "live",
    BrokerState.EXPECTED: "expected",
    BrokerState.SILENT: "silent",
    BrokerState.DEAD: "dead",
}


class CapacityView(msgspec.Struct, kw_only=True):
    """What a broker can process and what is left of it, in msg/s."""

    name: str
    mcap: float  # under the hardest promise that the broker has
    mcap_stated: float
    mcap_assumed: bool  # nobody stated or measured it
    allocated: float
    rcap: float
    capacities: list[dict[str, Any]]


class BrokerView(msgspec.Struct, kw_only=True):
    """A broker, its capacity in msg/s, and its latest reports."""

    name: str
    incarnation: str
    srtm_version: str
    tcp_address: str
    http_address: str
    mqtt_address: str  # "": it speaks no MQTT in clear, or has not been heard by this distributor
    mcap: float  # as in ``CapacityView``
    mcap_stated: float
    mcap_assumed: bool
    capacities: list[dict[str, Any]]
    lab_service_time_ns: int  # 0: not in the laboratory
    allocated: float
    rcap: float
    state: BrokerWord  # a standby expects all
    alive: bool | None  # null: only the leader knows
    dead: bool
    accepting: bool
    draining: bool
    drain: DrainProgress | None
    throttling: Throttling | None
    machine: BrokerMachine | None  # null: the broker has not synced with this process, or does not say
    connections: int | None  # of clients, NSQ and MQTT; null: likewise
    mqtt_sessions: int | None  # also of clients that are away; null: likewise
    last_sync_s_ago: float | None
    reports: list[TopicReport]


class HealthView(msgspec.Struct, kw_only=True):
    """That this distributor works, and whether it leads."""

    status: Literal["ok"]
    version: str
    role: Literal["leader", "standby"]
    leader: str | None  # URL of another leader, if one is known
    instance: str  # the same under all addresses of this process


def capacity_view(name: str, registry: Registry) -> CapacityView:
    """Raises NotFound."""
    broker, load, measured = registry.broker(name), registry.loads.get(name, NO_LOAD), registry.capacities.get(name, ())
    promises = list(load.promised())
    known = effective_mcap(broker.mcap, measured, promises)
    mcap = known or assumed_mcap(slo for slo, _ in promises)
    return CapacityView(
        name=name,
        mcap=mcap,
        mcap_stated=broker.mcap,
        mcap_assumed=not known,
        allocated=load.allocated,
        rcap=max(0.0, mcap - load.allocated),
        capacities=[capacity.to_json() for capacity in measured],
    )


def broker_view(name: str, registry: Registry, syncing: SyncService) -> BrokerView:
    """Raises NotFound."""
    broker, capacity, session = registry.broker(name), capacity_view(name, registry), syncing.sessions.of(name)
    return BrokerView(
        name=name,
        incarnation=broker.incarnation,
        srtm_version=broker.srtm_version,
        tcp_address=broker.tcp_address,
        http_address=broker.http_address,
        mqtt_address=session.mqtt_address,
        mcap=capacity.mcap,
        mcap_stated=capacity.mcap_stated,
        mcap_assumed=capacity.mcap_assumed,
        capacities=capacity.capacities,
        lab_service_time_ns=session.lab_service_ns,
        allocated=capacity.allocated,
        rcap=capacity.rcap,
        state=broker_word(name, registry, session.drain),
        alive=registry.is_alive(name) if registry.leads else None,
        dead=broker.dead,
        accepting=broker.accepting,
        draining=name in registry.draining,
        drain=session.drain,
        throttling=session.throttling,
        machine=session.machine,
        connections=session.connections,
        mqtt_sessions=session.mqtt_sessions,
        last_sync_s_ago=registry.liveness.last_s_ago(name),
        reports=list(session.reports.topics.values()) if session.reports is not None else [],
    )


def broker_word(name: str, registry: Registry, drain: DrainProgress | None) -> BrokerWord:
    """The state of a broker for people. ``drain``: as the broker told it last."""
    state, has_left = registry.broker_state(name), drain is not None and drain.state == "drained"
    if name in registry.draining:
        return "drained" if has_left or state is BrokerState.DEAD else "draining"
    return _WORDS[state]


def is_away(name: str, registry: Registry) -> bool:
    """Whether a broker is known not to run, or is not heard from. A standby knows of deaths alone."""
    if not registry.leads:
        return registry.broker_state(name) is BrokerState.DEAD
    return not registry.is_alive(name) and registry.broker_state(name) is not BrokerState.EXPECTED


def health_view(registry: Registry) -> HealthView:
    return HealthView(
        status="ok",
        version=__version__,
        role="leader" if registry.leads else "standby",
        leader=registry.leader_url,
        instance=registry.config.instance,
    )
