"""nsqlookupd 1.3.0's answers, made from what brokers report: a stock NSQ consumer finds all brokers of a topic.

Reads the registry and the brokers' reports; changes nothing.
"""

from __future__ import annotations

import msgspec

from distributor.model.cluster import Broker
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.control import Lookup, Producer

NSQD_VERSION = "1.3.0"  # as the engine tells clients; nsqadmin takes a lower one for a nsqd without today's routes


class LookupTopics(msgspec.Struct, kw_only=True):
    topics: list[str]


class LookupChannels(msgspec.Struct, kw_only=True):
    channels: list[str]


class LookupNode(Producer, frozen=True):
    """A broker with its topics. There are no tombstones here."""

    tombstones: list[bool]
    topics: list[str]


class LookupNodes(msgspec.Struct, kw_only=True):
    producers: list[LookupNode]


class LookupRefusal(msgspec.Struct, kw_only=True):
    message: str


def topics(registry: Registry, syncing: SyncService) -> list[str]:
    reported = {topic for reports in syncing.living().values() for topic in reports}
    return sorted(reported.union(topic.name for topic in registry.managed()))


def channels(topic: str, registry: Registry, syncing: SyncService) -> list[str]:
    known = registry.managed_topic(topic)
    return sorted(syncing.all_channels(topic).union(known.channels if known else ()))


def lookup(topic: str, registry: Registry, syncing: SyncService) -> Lookup | None:
    """None: no broker knows the topic."""
    if registry.managed_topic(topic) is None and not any(topic in reports for reports in syncing.living().values()):
        return None
    found = [producer(broker) for broker in active(registry) if _has(topic, broker.name, registry, syncing)]
    return Lookup(channels=channels(topic, registry, syncing), producers=found)


def nodes(registry: Registry, syncing: SyncService) -> LookupNodes:
    """Every active broker with its topics."""
    known = topics(registry, syncing)
    return LookupNodes(producers=[_node(broker, known, registry, syncing) for broker in active(registry)])


def _node(broker: Broker, known: list[str], registry: Registry, syncing: SyncService) -> LookupNode:
    held = [topic for topic in known if _has(topic, broker.name, registry, syncing)]
    described = msgspec.structs.asdict(producer(broker))
    return LookupNode(**described, tombstones=[False] * len(held), topics=held)


def active(registry: Registry) -> list[Broker]:
    """Brokers that consumers may connect to.

    A broker that is cut off from here may still serve its consumers, so it counts for ``inactive_producer_s``. Brokers
    do not sync with a standby: it names all that are not dead.
    """
    limit_s = registry.config.inactive_producer_s
    return [
        broker
        for name, broker in sorted(registry.brokers.items())
        if not broker.dead and (not registry.leads or registry.liveness.silent_s(name) <= limit_s)
    ]


def _has(topic: str, broker: str, registry: Registry, syncing: SyncService) -> bool:
    """Whether ``broker`` counts as a producer of ``topic``: it has the topic.

    All brokers have every managed topic. Of those, it is one with a part in the topic, or with messages.
    """
    known, report = registry.managed_topic(topic), syncing.report(broker, topic)
    if known is None:
        return report is not None
    if broker in known.leases.target or broker in known.placement.brokers:
        return True
    return report is not None and (report.received > 0 or report.holds_messages)


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
