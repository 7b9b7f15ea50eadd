"""A standby in this process, beside a leader on the same PostgreSQL: what it answers, what it refuses, how fresh it
is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from distributor.config import DistributorConfig
from distributor.leadership.standby import Standby
from distributor.registry.registry import Registry
from distributor.storage import cluster_rows as records
from distributor.storage.store import Store
from distributor.sync.service import SyncService
from srtm.errors import Unavailable
from srtm.topics.spec import parse_change
from tests.support.distributor_in_process import Distributor, settle, spec

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture
async def leader(postgres_url: str) -> AsyncIterator[Distributor]:
    store = await Store.open(postgres_url)
    await store.lead("http://leader:1")
    registry = await Registry.load(store, DistributorConfig(store=postgres_url))
    yield Distributor(store, registry, SyncService(registry))
    await store.aclose()


@pytest.fixture
async def standby(postgres_url: str, leader: Distributor) -> AsyncIterator[Standby]:
    store = await Store.open(postgres_url)
    yield Standby(store, DistributorConfig(store=postgres_url))
    await store.aclose()


@pytest.fixture
async def client(standby: Standby) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(standby.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://d") as opened:
        yield opened


async def test_every_answer_is_as_fresh_as_the_store(leader, client):
    assert (await client.get("/v1/topics")).json() == []
    a, b = await leader.brokers("a", "b")
    await leader.submit(spec())
    (shown,) = (await client.get("/v1/topics")).json()
    assert (shown["name"], shown["state"], [one["broker"] for one in shown["brokers"]]) == (
        "cars",
        "placed",
        ["a", "b"],
    )
    assert [one["applied_version"] for one in shown["brokers"]] == [0, 0]
    await settle(a, b)
    await leader.registry.state.store_acknowledged()
    shown = (await client.get("/v1/topics/cars")).json()
    assert [one["applied_version"] == one["share_version"] for one in shown["brokers"]] == [True, True]
    change = {"add": [{"id": "new", "rate": 1.0}], "remove": ["p0"]}
    await leader.registry.change_publishers("cars", lambda old: parse_change(old, change))
    ids = (await client.get("/v1/topics/cars/publishers")).json()["ids"]
    assert ids == list(leader.registry.topic("cars").spec.publishers.ids)
    await leader.registry.remove("cars", purge=False)
    assert (await client.get("/v1/topics/cars")).status_code == 404


async def test_what_only_the_leader_does_is_refused_with_where_it_is(leader, client):
    (a,) = await leader.brokers("a", mcap=5000.0)
    await leader.submit(spec())
    before = leader.registry.version
    for method, path in (
        ("PUT", "/v1/topics/cars"),
        ("DELETE", "/v1/topics/cars"),
        ("POST", "/v1/brokers/a/sync"),
        ("POST", "/v1/brokers/a/dead"),
        ("POST", "/v1/plan"),
        ("GET", "/v1/topics/cars/publishers/undeclared"),
    ):
        answer = await client.request(method, path)
        assert answer.status_code == 503, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.json()["title"], answer.json()["leader"]) == ("standby", "http://leader:1")
    assert leader.registry.version == before
    assert (await client.get("/v1/topics/cars/publishers/p5")).json()["address"] == a.address


async def test_it_says_that_it_stands_by_and_claims_to_have_heard_nobody(leader, client):
    await leader.brokers("a")
    health = (await client.get("/healthz")).json()
    assert (health["role"], health["leader"]) == ("standby", "http://leader:1")
    assert (await client.get("/v1/brokers/a")).json()["alive"] is None
    metrics = (await client.get("/metrics")).text
    assert "srtm_distributor_leads 0.0" in metrics
    assert 'srtm_broker_alive{broker="a"}' not in metrics


async def test_consumers_find_their_brokers_at_a_standby_too(leader, client):
    a, b, _ = await leader.brokers("a", "b", "c")
    await leader.submit(spec())
    found = (await client.get("/lookup?topic=cars")).json()
    assert {one["tcp_port"] for one in found["producers"]} == {int(one.address.split(":")[1]) for one in (a, b)}
    assert len((await client.get("/nodes")).json()["producers"]) == 3


async def test_what_was_read_before_spares_reading_publishers_again_and_gives_the_same(leader, standby):
    a, b = await leader.brokers("a", "b")
    for name in ("cars", "lorries", "removed"):
        await leader.submit(spec(name, count=30))
    await standby.refresh()
    before = standby.stored
    await leader.registry.remove("removed", purge=True)
    await leader.submit(spec("lorries", count=31))
    await settle(a, b)
    await standby.refresh()
    fresh = await records.load(leader.store)
    assert standby.stored.topics["cars"].placement is before.topics["cars"].placement
    assert standby.stored.topics["lorries"].placement is not before.topics["lorries"].placement
    for name, topic in fresh.topics.items():
        known = standby.stored.topics[name]
        assert (known.spec, known.leases, known.channels) == (topic.spec, topic.leases, topic.channels)
        assert known.placement.brokers == topic.placement.brokers
        assert known.placement.at.tolist() == topic.placement.at.tolist()
    assert standby.stored.version == fresh.version == leader.registry.version


async def test_the_book_of_a_leader_comes_back_from_the_store_as_it_was(leader):
    a, _ = await leader.brokers("a", "b")
    await leader.submit(spec())
    await settle(a)
    await leader.registry.state.store_acknowledged()
    loaded = await Registry.load(leader.store, leader.registry.config)
    assert max(loaded.state.skips) == leader.registry.version
    assert loaded.brokers == leader.registry.brokers
    assert loaded.topics["cars"].leases == leader.registry.topics["cars"].leases
    assert loaded.decisions == leader.registry.decisions


async def test_without_the_store_it_refuses_to_answer_from_memory(leader, standby, client, monkeypatch):
    assert (await client.get("/v1/topics")).status_code == 200

    async def away() -> None:
        raise Unavailable("store: gone")

    monkeypatch.setattr(standby._store, "edition", away)
    answer = await client.get("/v1/topics")
    assert (answer.status_code, answer.json()["detail"]) == (503, "store: gone")
    assert standby.stored is None
    assert (await client.put("/v1/topics/cars")).status_code == 503
