"""A store with many topics and brokers, written at once: to submit them one by one would take minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from distributor.model.cluster import Decision, Topic
from distributor.model.state_change import StateChange
from distributor.storage import cluster_rows
from distributor.sync.report_checks import merge_reports
from srtm.control import SyncRequest, TopicReport
from tests.support.distributor_in_process import Distributor, settle, spec
from tests.support.topic_reports import period, report


async def seeded(path: Path, topics: int, brokers: int) -> Distributor:
    """A distributor over a store of ``topics``, dealt to ``brokers``, each of which was heard and reports its own.

    Of three topics one is within its promise, one is late, and of one nothing was received. Topic ``first`` at broker
    ``b`` comes in addition, and is not reported.
    """
    opened = await Distributor.open(path)
    (first,) = await opened.brokers("b", mcap=600.0)
    await opened.submit(spec("first", count=3, rate=1.0))
    await settle(first)
    model, there = opened.registry.topic("first"), opened.registry.brokers["b"]
    names = [f"broker-{number}" for number in range(brokers)]
    hosts = [f"10.0.{number // 256}.{number % 256}" for number in range(brokers)]
    many = [_copied(model, f"topic-{number}", names[number % brokers]) for number in range(topics)]
    change = StateChange(
        topics=many,
        brokers=[
            replace(there, name=name, tcp_address=f"{host}:{4150 + ord(name[-1])}", claims=(f"{name} its directory",))
            for name, host in zip(names, hosts, strict=True)
        ],
    )
    version = opened.registry.version + 1
    log = {topic.name: Decision(number=1, wall_ns=10**18, lines=("submitted",)) for topic in many}
    await opened.store.apply(cluster_rows.changes(change, version, {}, log))
    await opened.aclose()
    again = await Distributor.open(path)
    for at, (name, host) in enumerate(zip(names, hosts, strict=True)):
        # Not by a sync: the first one of each broker goes through all topics.
        reports = [reported(number) for number in range(at, topics, brokers)]
        told = SyncRequest(
            incarnation="1", srtm_version="0", tcp_address=host, http_address=host, mcap=600.0, topics=reports
        )
        found = merge_reports(None, told)
        assert found is not None
        again.syncing.sessions.take_reports(name, found)
        again.registry.liveness.hear(name, 0.0)
    return again


def _copied(topic: Topic, name: str, broker: str) -> Topic:
    (target,), (holding,) = topic.leases.target.values(), topic.leases.holdings.values()
    leases = replace(topic.leases, target={broker: target}, holdings={broker: holding})
    placement = replace(topic.placement, brokers=(broker,))
    return replace(topic, spec=replace(topic.spec, name=name), placement=placement, leases=leases)


def reported(number: int) -> TopicReport:
    """As a broker tells of ``topic-NUMBER``."""
    late_ms, count = [(1.0, 10_000), (40.0, 10_000), (0.0, 0)][number % 3]
    known = report(period(late_ms, 0.1, count))
    return msgspec.structs.replace(known, topic=f"topic-{number}", rate=3.3, backlog=number % 7)
