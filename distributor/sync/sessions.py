"""What brokers have said, in memory: one ``BrokerSession`` a broker, from its first sync until it is forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import trio

from distributor.model.cluster import Topic
from distributor.registry.registry import Registry
from distributor.sync.misplaced_publishers import MisplacedPublishers
from distributor.sync.release_rates import ReleaseWindow
from distributor.sync.report_checks import BrokerReports, is_sound_full, is_sound_link
from distributor.verdict.kept import PromiseVerdict, promise_verdict
from srtm.control import (
    BrokerMachine,
    DrainProgress,
    LinkLatency,
    MeasurementRequest,
    MqttLosses,
    MqttPorts,
    SyncRequest,
    Throttling,
    TopicReport,
    UnassignedPublisher,
)

_MOST_COUNTED = 10_000  # contracts that a broker reports
_MOST_LINKS = 10_000  # likewise
_MOST_FULL = 10_000  # topics, likewise


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
    mqtt_full: dict[str, dict[str, int]] = field(default_factory=dict)  # {topic: ``MqttLosses.full`` of it}
    ready_since_s: dict[str, float] = field(default_factory=dict)  # {topic: its share is in force, trio time}

    def reported_s_ago(self) -> float:
        """Seconds since ``reports`` were true."""
        return trio.current_time() - self.reported_s

    def take_facts(self, request: SyncRequest, contracts: Collection[tuple[str, str]]) -> None:
        """What it says of itself. ``contracts``: the (namespace, subject) of all that there are."""
        self.drain = request.drain
        self.lab_service_ns = request.lab_service_time_ns
        self.throttling = request.throttling
        self.machine = request.machine
        self.connections = request.connections
        self.mqtt_sessions = request.mqtt_sessions
        if not request.reports_since:
            self.contract_counts.clear()
            self.links.clear()
            self.mqtt_full.clear()
        for counts in request.contract_counts[:_MOST_COUNTED]:
            self.contract_counts[counts.namespace, counts.subject] = counts.counts
        if len(self.contract_counts) > len(contracts):  # some are of contracts that are gone
            self.contract_counts = {key: each for key, each in self.contract_counts.items() if key in contracts}
        self._take_links(request.links[:_MOST_LINKS])
        self._take_full(request.mqtt_full)
        self.mqtt_address = request.mqtt_address
        self.mqtt_ports = request.mqtt_ports

    def _take_links(self, links: Sequence[LinkLatency]) -> None:
        """Of new ones as many as there is room for; those that are known always. Where room lacks, those of topics that
        the broker has no more make some."""
        if not links:
            return
        room = _MOST_LINKS - sum(map(len, self.links.values()))
        if room < len(links) and self.reports is not None:
            self.links = {topic: known for topic, known in self.links.items() if topic in self.reports.topics}
            room = _MOST_LINKS - sum(map(len, self.links.values()))
        for link in filter(is_sound_link, links):
            is_new = link.origin not in self.links.get(link.topic, {})
            if not is_new or room > 0:
                self.links.setdefault(link.topic, {})[link.origin] = link
                room -= is_new

    def _take_full(self, told: Mapping[str, Mapping[str, int]]) -> None:
        """Likewise."""
        for topic, full in told.items():
            if not full:
                self.mqtt_full.pop(topic, None)
            elif is_sound_full(topic, full) and (topic in self.mqtt_full or len(self.mqtt_full) < _MOST_FULL):
                self.mqtt_full[topic] = dict(full)


class Sessions:
    """What all brokers have said. ``by_broker`` is {broker: its session}.

    To ask for one topic goes through the brokers that said something of it: there may be thousands of both.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.by_broker: dict[str, BrokerSession] = {}
        self._reports: dict[str, dict[str, TopicReport]] = {}  # {topic: {broker: its latest report}}
        self._linked: dict[str, dict[str, None]] = {}  # {topic: brokers that name links of it, in their order}
        self._full: dict[str, dict[str, None]] = {}  # {topic: those where MQTT's sessions and groups were full of it}

    def of(self, name: str) -> BrokerSession:
        """The session of broker ``name``; an empty one if it has not synced with this process."""
        return self.by_broker.get(name) or BrokerSession()

    def begun(self, name: str) -> BrokerSession:
        """The session of broker ``name``, which begins now if it has none."""
        return self.by_broker.setdefault(name, BrokerSession())

    def take_facts(self, name: str, request: SyncRequest, contracts: Collection[tuple[str, str]]) -> None:
        """What broker ``name`` says of itself. ``contracts``: the (namespace, subject) of all that there are."""
        session = self.begun(name)
        linked, full = set(session.links), set(session.mqtt_full)
        session.take_facts(request, contracts)
        _follow(self._linked, name, linked, session.links.keys())
        _follow(self._full, name, full, session.mqtt_full.keys())

    def take_reports(self, name: str, reports: BrokerReports) -> None:
        """The ``reports`` of broker ``name``, merged with those before."""
        session = self.begun(name)
        before, session.reports = session.reports, reports
        for topic in before.topics.keys() - reports.topics.keys() if before is not None else ():
            _leave(self._reports, topic, name)
        for topic, report in reports.topics.items():
            self._reports.setdefault(topic, {})[name] = report

    def forget(self, name: str) -> None:
        """Forget broker ``name``."""
        session = self.by_broker.pop(name, None)
        if session is None:
            return
        _follow(self._linked, name, session.links.keys(), set())
        _follow(self._full, name, session.mqtt_full.keys(), set())
        for topic in session.reports.topics if session.reports is not None else ():
            _leave(self._reports, topic, name)

    def reports_of(self, name: str) -> BrokerReports | None:
        session = self.by_broker.get(name)
        return None if session is None else session.reports

    @property
    def lab_service_ns(self) -> dict[str, int]:
        """{broker: its service time in the laboratory}; 0: not in the laboratory."""
        return {name: session.lab_service_ns for name, session in self.by_broker.items()}

    def reporting(self) -> Iterator[str]:
        """Brokers that have sent reports, dead ones too."""
        return (name for name, session in self.by_broker.items() if session.reports is not None)

    def topics(self) -> set[str]:
        """Those that a broker that is not known to be dead reported last."""
        return {topic for topic in self._reports if self.known(topic)}

    def report(self, broker: str, topic: str) -> TopicReport | None:
        """The latest report of ``topic`` by ``broker``, which may have died since."""
        return self.reports(topic).get(broker)

    def reports(self, topic: str) -> Mapping[str, TopicReport]:
        """{broker: its latest report of ``topic``}, of dead brokers too."""
        return self._reports.get(topic, {})

    def known(self, topic: str) -> dict[str, TopicReport]:
        """``reports`` of brokers that are not known to be dead."""
        brokers = self._registry.brokers
        return {
            name: report for name, report in self.reports(topic).items() if name in brokers and not brokers[name].dead
        }

    def heard(self, topic: str) -> dict[str, TopicReport]:
        """``reports`` of brokers that are alive."""
        return {name: report for name, report in self.reports(topic).items() if self._registry.is_alive(name)}

    def links(self, topic: str) -> dict[str, list[LinkLatency]]:
        """{broker: how messages of ``topic`` came there over links}, of brokers that are alive."""
        return {
            name: known
            for name in self._linked.get(topic, ())
            if self._registry.is_alive(name) and (known := self._of_known_brokers(self.of(name).links[topic]))
        }

    def _of_known_brokers(self, links: Mapping[str, LinkLatency]) -> list[LinkLatency]:
        return [link for origin, link in links.items() if origin in self._registry.brokers]

    def mqtt_losses(self, topic: str) -> dict[str, MqttLosses]:
        """{broker: what MQTT's clients of ``topic`` lost there}, of brokers that are alive and where they lost any."""
        reports, found = self.reports(topic), {}
        for name in dict.fromkeys([*reports, *self._full.get(topic, ())]):
            report, full = reports.get(name), self.of(name).mqtt_full.get(topic)
            refused, dropped = (report.mqtt_refused, report.mqtt_dropped) if report is not None else ([], [])
            if (refused or dropped or full) and self._registry.is_alive(name):
                found[name] = MqttLosses(refused=refused, dropped=dropped, full=full or {})
        return found

    def promise(self, topic: Topic) -> PromiseVerdict:
        """Whether the promise of ``topic`` is kept."""
        return promise_verdict(topic.spec.slo, self.heard(topic.name), self.links(topic.name))

    def all_channels(self, topic: str) -> set[str]:
        """The channels of ``topic`` that living brokers reported last, ephemeral ones too."""
        return {channel for report in self.known(topic).values() for channel in report.channels}


def _follow(brokers_of: dict[str, dict[str, None]], broker: str, before: Set[str], now: Set[str]) -> None:
    """``broker`` told of the topics ``before``, and tells of those of ``now``."""
    for topic in before - now:
        _leave(brokers_of, topic, broker)
    for topic in now - before:
        brokers_of.setdefault(topic, {})[broker] = None


def _leave(brokers_of: dict[str, dict[str, Any]], topic: str, broker: str) -> None:
    """``broker`` has no more to say of ``topic``."""
    del brokers_of[topic][broker]
    if not brokers_of[topic]:
        del brokers_of[topic]
