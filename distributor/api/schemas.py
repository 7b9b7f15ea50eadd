"""The shapes of what ``views`` and ``lookups`` show, for the OpenAPI document and the test that holds them to it.

Keys that a shape does not name may come besides: what explains (plans, fittings) grows.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from srtm.control import BrokerMachine, DrainProgress, ProposedShare, Throttling, TopicReport


class Slo(msgspec.Struct):
    percentile: float
    latency_ms: float


class TopicPart(msgspec.Struct):
    """A topic on one broker. Rates in msg/s, bursts in messages."""

    broker: str
    address: str | None
    publishers: int
    rate_assigned: float
    rate: float
    burst: float
    rate_in_force: float | None
    burst_in_force: float | None
    demand: float | None
    access_mean_ms: float | None
    fill_ratio: float | None
    share_version: int
    applied_version: int
    lab_service_time_ns: int
    throttling: Throttling | None
    renewed_s_ago: float | None
    report: TopicReport | None


class ChangeView(msgspec.Struct):
    """Shares as the adaptor changed them."""

    at: str
    mode: str
    reason: str
    shares: dict[str, ProposedShare]


class TopicView(msgspec.Struct):
    name: str
    version: int
    rate: float
    burst: float
    slo: Slo
    on_excess: Literal["delay", "reject"]
    mode: str
    adaptation: dict[str, float | str]
    changes: list[ChangeView]
    lease: str
    placement: str
    split: str
    seed: int
    publishers: int
    publishers_rate: float
    state: Literal["placed", "waiting", "partial"]
    reason: str
    channels: list[str]
    brokers: list[TopicPart]


class PlanView(msgspec.Struct):
    """What a submission would do; docs/placement.md says what explains it."""

    state: Literal["placed", "waiting", "partial"]


class PublisherColumns(msgspec.Struct):
    ids: list[str]
    brokers: list[str | None]
    groups: list[str]
    rates: list[float]
    processes: list[Literal["poisson", "periodic"]]
    batches: list[int]


class DecisionView(msgspec.Struct):
    number: int
    at: str
    lines: list[str]


class CapacityView(msgspec.Struct):
    name: str
    mcap: float
    mcap_stated: float
    allocated: float
    rcap: float | None
    capacities: list[dict[str, Any]]


class BrokerView(CapacityView):
    incarnation: str
    srtm_version: str
    tcp_address: str
    http_address: str
    alive: bool | None
    dead: bool
    accepting: bool
    draining: bool
    drain: DrainProgress | None
    throttling: Throttling | None
    machine: BrokerMachine | None
    last_sync_s_ago: float | None
    reports: list[TopicReport]


class MeasuredPart(msgspec.Struct):
    """What was measured on one broker, at the percentile of the promise."""

    broker: str
    messages: int
    total_ms: float
    access_ms: float
    processing_ms: float
    lab_service_time_ns: int


class FittingView(msgspec.Struct):
    topic: str
    state: Literal["queued", "waiting", "running", "fits", "does not fit", "failed", "off"]
    measured: list[MeasuredPart]
    service_us: dict[str, float]


class Health(msgspec.Struct):
    status: Literal["ok"]
    version: str
    role: Literal["leader", "standby"]
    leader: str | None
    instance: str


class LookupTopics(msgspec.Struct):
    topics: list[str]


class LookupChannels(msgspec.Struct):
    channels: list[str]


class LookupNodes(msgspec.Struct):
    producers: list[dict[str, Any]]


class LookupRefusal(msgspec.Struct):
    """nsqlookupd's."""

    message: str
