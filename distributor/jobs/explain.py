"""Explanations of what the registry has, or would have: gathered here, computed in a worker thread. Changes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import fmean

import trio

from distributor.jobs.layout_jobs import measured_service_us
from distributor.model.cluster import Topic
from distributor.prediction import promise
from distributor.prediction.explanation import Json, Outcome, Roomy, explain
from distributor.prediction.forecast import Service
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.topics.spec import TopicSpec

DEFAULT_CONFIDENCE = promise.CONFIDENCE


def check_confidence(confidence: float | None) -> None:
    """Raises BadInput."""
    if confidence is not None:
        promise.checked_confidence(confidence)


async def planned(
    spec: TopicSpec, registry: Registry, syncing: SyncService, confidence: float = DEFAULT_CONFIDENCE
) -> Json:
    """What a submission of ``spec`` would do now. ``moves``: publishers that would go to another broker. Raises
    BadInput."""
    burst, placement, reasons = await registry.dry_run(spec, service_ns(spec.name, registry, syncing))
    split = registry.split_after(spec, placement)
    outcome = Outcome(
        spec=spec,
        burst=burst,
        placement=placement,
        reasons=reasons,
        offered=registry.offered(spec),
        services=services(spec.name, registry, syncing),
        confidence=confidence,
        shares=split(spec, burst),
        split=split,
        roomy=await _roomy(spec, burst, registry),
    )
    before = registry.topics.get(spec.name)
    moves = 0 if before is None else await trio.to_thread.run_sync(placement.count_moved_from, before.placement)
    return {**await trio.to_thread.run_sync(partial(explain, outcome)), "moves": moves}


async def submitted(topic: Topic, registry: Registry, syncing: SyncService, confidence: float | None = None) -> Json:
    """The topic as it is placed now."""
    outcome = Outcome(
        spec=topic.spec,
        burst=topic.burst,
        placement=topic.placement,
        reasons=topic.reasons,
        offered=registry.offered(topic.spec),
        services=services(topic.name, registry, syncing),
        confidence=confidence,
        shares=topic.leases.target if topic.leases.target.keys() >= set(topic.placement.brokers) else None,
        split=registry.split_after(topic.spec, topic.placement),
        roomy=None if confidence is None else await _roomy(topic.spec, topic.burst, registry),
    )
    return await trio.to_thread.run_sync(partial(explain, outcome))


async def _roomy(spec: TopicSpec, burst: float, registry: Registry) -> Roomy | None:
    """None: the burst has a token for each broker."""
    if burst >= len(registry.brokers):
        return None
    tokens = float(max(len(registry.brokers), spec.publishers.largest_batch))
    plan = await registry.dry_run(replace(spec, burst=tokens))
    return Roomy(plan.placement, registry.split_after(spec, plan.placement))


def services(topic: str, registry: Registry, syncing: SyncService) -> dict[str, Service]:
    """{broker: what a message takes of it}, where that is known: of the laboratory; else as it was recorded when
    ``topic`` was fitted; else in any other topic's fitting, the mean of what these found."""
    others: dict[str, list[float]] = {}
    for record in registry.fittings.values():
        for name, us in measured_service_us(record).items():
            others.setdefault(name, []).append(us)
    own = measured_service_us(registry.fittings.get(topic))
    measured = {name: fmean(found) for name, found in others.items()} | own
    found = {name: Service(round(us * 1e3), "measured") for name, us in measured.items()}
    return found | {name: Service(ns, "laboratory") for name, ns in syncing.sessions.lab_service_ns.items() if ns}


def service_ns(topic: str, registry: Registry, syncing: SyncService) -> dict[str, int]:
    """{broker: ns that a message takes of it}, as in ``services``."""
    return {name: one.ns for name, one in services(topic, registry, syncing).items()}
