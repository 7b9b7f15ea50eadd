"""A topic as the distributor placed it: when its shares are in force, and the traffic of its publishers, each sending
to the broker that it was assigned to."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from bench.harness.load.workload import Plan, Publishers, Subscriber
from srtm.client.distributor import DistributorClient, Json
from srtm.errors import Unavailable

_LOOK_S = 0.05  # the distributor tells a change of shares to brokers only


def in_force(view: Json, brokers: int = 1) -> bool:
    """Wholly placed, on so many brokers at least, and what was granted last is what each says it applies."""
    places = view["brokers"]
    applied = [one["applied_version"] == one["share_version"] > 0 for one in places]
    return view["state"] == "placed" and len(places) >= brokers and all(applied)


async def settled(client: DistributorClient, topic: str, *, within_s: float, brokers: int = 1) -> Json:
    """The topic's view once its shares are in force. Raises Unavailable."""
    view = await client.topic(topic)
    with trio.move_on_after(within_s):
        while not in_force(view, brokers):
            await trio.sleep(_LOOK_S)
            view = await client.topic(topic)
        return view
    told = f"{view['state']}, {len(view['brokers'])} brokers, {view['reason']}"
    raise Unavailable(f"the shares of {topic} were not in force within {within_s:g} s: {told}")


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
