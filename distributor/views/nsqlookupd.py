"""nsqlookupd 1.3.0's questions, answered from what brokers report: a stock NSQ consumer finds all brokers of a topic.
Pure reading."""

from __future__ import annotations

from typing import Any

from distributor.model.cluster import Broker
from distributor.registry.registry import Registry
from distributor.sync.service import Syncing
from srtm.control import Lookup, Producer

NSQD_VERSION = "1.3.0"  # what the engine tells clients; nsqadmin takes a lower one for a nsqd that lacks today's routes


def topics(registry: Registry, syncing: Syncing) -> list[str]:
    reported = {topic for reports in syncing.living().values() for topic in reports}
    return sorted(reported.union(topic.name for topic in registry.managed()))


def channels(topic: str, registry: Registry, syncing: Syncing) -> list[str]:
    known = registry.managed_topic(topic)
    return sorted(syncing.all_channels(topic).union(known.channels if known else ()))


def lookup(topic: str, registry: Registry, syncing: Syncing) -> Lookup | None:
    """None: nobody knows the topic."""
    if registry.managed_topic(topic) is None and not any(topic in reports for reports in syncing.living().values()):
        return None
    found = [producer(broker) for broker in active(registry) if _has(topic, broker.name, registry, syncing)]
    return Lookup(channels=channels(topic, registry, syncing), producers=found)


def nodes(registry: Registry, syncing: Syncing) -> list[dict[str, Any]]:
    """nsqlookupd's ``/nodes``: every broker with its topics; we know no tombstones."""
    known = topics(registry, syncing)
    result = []
    for broker in active(registry):
        one = producer(broker)
        theirs = [topic for topic in known if _has(topic, broker.name, registry, syncing)]
        result.append(
            {
                "remote_address": one.remote_address,
                "hostname": one.hostname,
                "broadcast_address": one.broadcast_address,
                "tcp_port": one.tcp_port,
                "http_port": one.http_port,
                "version": one.version,
                "tombstones": [False] * len(theirs),
                "topics": theirs,
            }
        )
    return result


def active(registry: Registry) -> list[Broker]:
    """Not only those heard lately: a broker that is cut off from here may well serve its consumers. A standby hears
    nobody, and names all that are not dead."""
    limit_s = registry.config.inactive_producer_s
    return [
        broker
        for name, broker in sorted(registry.brokers.items())
        if not broker.dead and (not registry.leads or registry.liveness.silent_s(name) <= limit_s)
    ]


def _has(topic: str, broker: str, registry: Registry, syncing: Syncing) -> bool:
    """Whether messages of ``topic`` may be there: it has a part in it, or had traffic. (All brokers have a bucket for
    every managed topic.)"""
    known = registry.managed_topic(topic)
    if known is not None and (broker in known.leases.target or broker in known.placement.brokers):
        return True
    report = syncing.report(broker, topic)
    return report is not None and report.received > 0


def producer(broker: Broker) -> Producer:
    host, _, port = broker.tcp_address.rpartition(":")
    host = host.strip("[]")
    return Producer(
        remote_address=broker.tcp_address,
        hostname=broker.name,
        broadcast_address=host,
        tcp_port=int(port),
        http_port=int(broker.http_address.rpartition(":")[2]),
        version=NSQD_VERSION,
    )
