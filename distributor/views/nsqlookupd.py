"""nsqlookupd 1.3.0's answers, made from what brokers report: a stock NSQ consumer finds all brokers of a topic.

Reads the registry and the brokers' reports; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from distributor.model.cluster import Broker
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.views.lookup_registrations import LookupRegistrations
from srtm.control import Lookup, Producer

NSQD_VERSION = "1.3.0"  # as the engine tells clients; nsqadmin takes a lower one for a nsqd without today's routes


class LookupTopics(msgspec.Struct, kw_only=True):
    topics: list[str]


class LookupChannels(msgspec.Struct, kw_only=True):
    channels: list[str]


class LookupNode(Producer, frozen=True):
    """A broker with its topics, and for each whether the broker is hidden from who looks for it."""

    tombstones: list[bool]
    topics: list[str]


class LookupNodes(msgspec.Struct, kw_only=True):
    producers: list[LookupNode]


class LookupInfo(msgspec.Struct, kw_only=True):
    version: str


class LookupRefusal(msgspec.Struct, kw_only=True):
    message: str


class Lookups:
    """nsqlookupd's view of the cluster: what brokers report, what is managed, and what was ``registered`` by hand."""

    def __init__(self, registry: Registry, syncing: SyncService, registered: LookupRegistrations) -> None:
        self._registry = registry
        self._syncing = syncing
        self._registered = registered

    def is_managed(self, topic: str) -> bool:
        return self._registry.managed_topic(topic) is not None

    def topics(self) -> list[str]:
        reported = self._syncing.sessions.topics()
        managed = {topic.name for topic in self._registry.managed()}
        return sorted(reported | managed | self._registered.topics)

    def channels(self, topic: str) -> list[str]:
        known = self._registry.managed_topic(topic)
        made = known.channels if known else ()
        return sorted(self._syncing.sessions.all_channels(topic) | set(made) | self._registered.channels(topic))

    def lookup(self, topic: str, now_s: float) -> Lookup | None:
        """None: nobody knows the topic."""
        is_reported = bool(self._syncing.sessions.known(topic))
        if not is_reported and not self.is_managed(topic) and topic not in self._registered.topics:
            return None
        holders = sorted(self._holders(topic) & self._registry.brokers.keys())
        found = [producer(broker) for name in holders if self._is_active(broker := self._registry.brokers[name])]
        return Lookup(
            channels=self.channels(topic),
            producers=[one for one in found if not self._registered.is_tombstoned(topic, _node_of(one), now_s)],
        )

    def holders(self) -> Iterator[tuple[str, set[str]]]:
        """Each topic with the brokers that count as its producers, for ``nodes``: there may be thousands of topics."""
        return ((topic, self._holders(topic)) for topic in self.topics())

    def nodes(self, holders: Iterable[tuple[str, set[str]]], now_s: float) -> Iterator[LookupNode]:
        """Every active broker with its topics."""
        held: dict[str, list[str]] = {}
        for topic, names in holders:
            for name in names:
                held.setdefault(name, []).append(topic)
        brokers = [broker for _, broker in sorted(self._registry.brokers.items()) if self._is_active(broker)]
        return (self._node(broker, held.get(broker.name, []), now_s) for broker in brokers)

    def _node(self, broker: Broker, held: list[str], now_s: float) -> LookupNode:
        described = producer(broker)
        hidden = [self._registered.is_tombstoned(topic, _node_of(described), now_s) for topic in held]
        return LookupNode(**msgspec.structs.asdict(described), tombstones=hidden, topics=held)

    def _holders(self, topic: str) -> set[str]:
        """The brokers that count as producers of ``topic``: they have it.

        All brokers have every managed topic. Of those, it is one with a part in the topic, or with messages.
        """
        known, reports = self._registry.managed_topic(topic), self._syncing.sessions.reports(topic)
        if known is None:
            return set(reports)
        busy = (name for name, report in reports.items() if report.received > 0 or report.holds_messages)
        return {*known.leases.target, *known.placement.brokers, *busy}

    def _is_active(self, broker: Broker) -> bool:
        """Whether consumers may connect to it.

        A broker that is cut off from here may still serve its consumers, so it counts for ``inactive_producer_s``.
        Brokers do not sync with a standby: it names all that are not dead.
        """
        registry = self._registry
        if broker.dead or not broker.tcp_address:
            return False
        return not registry.leads or registry.liveness.silent_s(broker.name) <= registry.config.inactive_producer_s


def _node_of(producer: Producer) -> str:
    """As nsqadmin names a broker."""
    return f"{producer.broadcast_address}:{producer.http_port}"


def producer(broker: Broker) -> Producer:
    host, _, port = broker.tcp_address.rpartition(":")
    return Producer(
        remote_address=broker.tcp_address,
        hostname=broker.name,
        broadcast_address=host.strip("[]"),
        tcp_port=int(port),
        http_port=int(broker.http_address.rpartition(":")[2]),
        version=NSQD_VERSION,
    )
