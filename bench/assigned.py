"""The traffic of a topic's publishers, each sending to the broker that the distributor assigned it to. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from bench.workload import Plan, Publishers, Subscriber
from srtm.distributor_client import Json


def plan_of(
    topic: str,
    assignments: Json,
    addresses: Mapping[str, str],
    *,
    seconds: float,
    warmup_s: float,
    seed: int,
    slo_ms: float,
    percentile: float,
) -> Plan:
    """``assignments``: columns, everybody has a broker. ``addresses``: {broker: address}."""
    brokers = list(addresses)
    numbers = {name: number for number, name in enumerate(sorted({name for name in assignments["groups"] if name}))}
    publishers = Publishers(
        ids=assignments["ids"],
        target=[brokers.index(name) for name in assignments["brokers"]],
        rate=assignments["rates"],
        batch=assignments["batches"],
        group=[numbers.get(name, -1) for name in assignments["groups"]],
        process=assignments["processes"],
    )
    return Plan(
        topic=topic,
        targets=list(addresses.values()),
        publishers=publishers,
        subscribers=[Subscriber(target=target) for target in sorted(set(publishers.target))],
        duration_s=seconds,
        warmup_s=warmup_s,
        seed=seed,
        slo_ms=slo_ms,
        percentile=percentile,
    )
