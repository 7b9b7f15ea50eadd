"""A whole cluster with its adaptor: shares follow where traffic really is, and brokers find them by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from bench.harness.load.workload import Plan, Subscriber, modelled
from srtm._native import LoadGen
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster, cluster

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
LOADS = (90, 10)  # publishers of 10 msg/s on each broker; declared as half and half
TOPIC = {
    "name": "cars",
    "rate": 1_100,
    "burst": 30,
    "mode": "fitted",
    "placement": "lb",
    "slo": {"percentile": 99, "latency_ms": 50},
    "publishers": [{"ids": ["first", "second"], "rates": [500.0, 500.0]}],
}


@asynccontextmanager
async def lopsided(running: Cluster) -> AsyncIterator[None]:
    """Nine tenths of the traffic on the first broker, of publishers that the topic does not name."""
    target = [at for at, count in enumerate(LOADS) for _ in range(count)]
    plan = Plan(
        topic="cars",
        targets=[place.tcp_address for place in running.brokers],
        publishers=modelled(target, 10.0, id_prefix="car-"),
        subscribers=[Subscriber(target=0), Subscriber(target=1)],
        duration_s=300.0,
        warmup_s=0.0,
        drain_s=0.0,
    )
    generator = LoadGen(msgspec.json.encode(plan))
    generator.start()
    try:
        yield
    finally:
        generator.stop()


async def until(client: DistributorClient, holds: Callable[[list[Json]], bool]) -> list[Json]:
    """The topic's brokers, in order of name, once that holds of them."""
    with trio.fail_after(PATIENCE_S):
        while True:
            places = sorted((await client.topic("cars"))["brokers"], key=lambda place: str(place["broker"]))
            if len(places) == 2 and holds(places):
                return places
            await trio.sleep(0.2)


def follows(places: list[Json]) -> bool:
    """The first broker has about nine tenths, and both shares sum to the envelope."""
    rates, bursts = ([place[field] for place in places] for field in ("rate_in_force", "burst_in_force"))
    if None in rates:
        return False
    return bool(rates[0] > 850.0 and sum(rates) == pytest.approx(1_100.0) and sum(bursts) == pytest.approx(30.0))


def follows_by_exchange(places: list[Json]) -> bool:
    """The same while brokers exchange: what they report is of two instants, so it need not sum to the envelope."""
    rates = [place["rate_in_force"] for place in places]
    return None not in rates and rates[0] > 850.0 and sum(rates) == pytest.approx(1_100.0, rel=0.1)


def as_declared(places: list[Json]) -> bool:
    shares = [(place["rate_in_force"], place["burst_in_force"]) for place in places]
    return settled(places) and shares == [(pytest.approx(550.0), pytest.approx(15.0))] * 2


def settled(places: list[Json]) -> bool:
    return all(place["applied_version"] == place["share_version"] and place["rate"] > 0 for place in places)


async def test_shares_follow_the_traffic_under_the_adaptor_and_by_exchange_among_brokers(tmp_path: Path) -> None:
    async with (
        cluster(brokers=2, mcap=2_000.0, data=tmp_path, ready_timeout_s=PATIENCE_S) as running,
        DistributorClient(running.distributor) as client,
    ):
        await client.create_or_change_topic("cars", TOPIC)
        await until(client, settled)
        async with lopsided(running):
            await until(client, lambda seen: follows(seen) and (seen[0]["demand"] or 0.0) > 600.0)
            assert (await client.topic("cars"))["changes"]

            await client.set_options("cars", {"mode": "static"})
            await until(client, as_declared)

            await client.set_options("cars", {"mode": "gdrl"})
            await until(client, follows_by_exchange)

            await client.set_options("cars", {"mode": "static"})
            await until(client, as_declared)
