"""Explanations of what the book has, or would have: gathered here, computed in a worker thread. Changes nothing."""

from __future__ import annotations

from functools import partial

import trio

from distributor.explanation import Json, Outcome, explain
from distributor.forecast import Service
from distributor.registry import Registry
from distributor.state import Topic
from distributor.syncing import Syncing
from srtm.topic import TopicSpec


async def planned(spec: TopicSpec, registry: Registry, syncing: Syncing) -> Json:
    """What a submission of ``spec`` would do now. Raises BadInput."""
    burst, placement, reasons = await registry.dry_run(spec)
    outcome = Outcome(
        spec=spec,
        burst=burst,
        placement=placement,
        reasons=reasons,
        offered=registry.offered(spec),
        services=services(syncing),
    )
    return await trio.to_thread.run_sync(partial(explain, outcome))


async def submitted(topic: Topic, registry: Registry, syncing: Syncing) -> Json:
    """The topic as it is placed now."""
    outcome = Outcome(
        spec=topic.spec,
        burst=topic.burst,
        placement=topic.placement,
        reasons=topic.reasons,
        offered=registry.offered(topic.spec),
        services=services(syncing),
        shares=topic.leases.target if topic.leases.target.keys() >= set(topic.placement.brokers) else None,
    )
    return await trio.to_thread.run_sync(partial(explain, outcome))


def services(syncing: Syncing) -> dict[str, Service]:
    """{broker: what a message takes of it}, where that is known."""
    return {name: Service(took, "laboratory") for name, took in syncing.lab_service_ns.items() if took}
