"""What the distributor knows of its conversation with one broker. Kept in memory, from the broker's first sync until
the broker is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from distributor.sync.misplaced_publishers import MisplacedPublishers
from distributor.sync.release_rates import ReleaseWindow
from distributor.sync.report_checks import BrokerReports
from srtm.control import (
    BrokerMachine,
    DrainProgress,
    LinkLatency,
    MeasurementRequest,
    MqttPorts,
    Throttling,
    UnassignedPublisher,
)


@dataclass(frozen=True, slots=True)
class ChannelBasis:
    """What decides, beside reports, which channels a topic has. While it stays the same, only the topics that the
    reports name have to be looked at."""

    topic_changes: int  # number of changes of topics so far
    channel_changes: int  # number of changes of channels in reports so far
    reporting: frozenset[str]  # brokers not known to be dead that have sent reports
    living: frozenset[str]  # brokers not known to be dead


@dataclass(kw_only=True)
class BrokerSession:
    """One broker, under all of its incarnations."""

    latest_sync: object = None  # identifies the latest request: answers to earlier ones must not take moves
    drain: DrainProgress | None = None  # None: the broker does not drain
    lab_service_ns: int = 0  # service time in the laboratory; 0: not in the laboratory
    throttling: Throttling | None = None
    machine: BrokerMachine | None = None
    connections: int | None = None  # of clients, NSQ and MQTT; None: the broker does not say
    mqtt_sessions: int | None = None  # likewise
    mqtt_address: str = ""  # HOST:PORT; "": it speaks no MQTT in clear
    mqtt_ports: MqttPorts = field(default_factory=MqttPorts)
    reports: BrokerReports | None = None  # None: none has arrived
    reported_s: float = 0.0  # trio time at which all of them were true
    ignored_reports: int = 0  # since this process started
    channel_basis: ChannelBasis | None = None  # with which this broker's channels were worked out last
    told_brokers: dict[str, str] | None = None  # in the latest answer; None: nothing
    measurements: list[MeasurementRequest] = field(default_factory=list)  # named in the latest answer
    unassigned: dict[UnassignedPublisher, int] = field(default_factory=dict)  # {publisher: moves sent}
    misplaced: MisplacedPublishers = field(default_factory=MisplacedPublishers)
    releases: ReleaseWindow = field(default_factory=ReleaseWindow)
    contract_counts: dict[tuple[str, str], list[tuple[int, int, int]]] = field(default_factory=dict)
    links: dict[str, dict[str, LinkLatency]] = field(default_factory=dict)  # {topic: {origin: over a link from there}}
    ready_since_s: dict[str, float] = field(default_factory=dict)  # {topic: its share is in force, trio time}

    def reported_s_ago(self) -> float:
        """Seconds since ``reports`` were true."""
        return trio.current_time() - self.reported_s
