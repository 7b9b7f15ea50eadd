"""Capacities at the distributor: noted, kept over restarts, placed by."""

from __future__ import annotations

import pytest
import trio

from distributor.registry.registry import Registry
from srtm.errors import NotFound
from srtm.topics.capacity import Capacity, Class, parse_capacity, parse_slo
from tests.distributor.api.test_app import TOPIC, http, problem
from tests.support.distributor_in_process import Distributor, spec

STRICT = {"mcap": 500.0, "slo": {"percentile": 99, "latency_ms": 5.0}, "source": "bench", "limited_by": "broker"}


def capacity(mcap: float, slo: str = "p99:5ms") -> Capacity:
    return Capacity(mcap=mcap, slo=parse_slo(slo), traffic=Class())


@pytest.fixture
async def client(distributor):
    async with http(distributor) as opened:
        yield opened


async def test_a_capacity_is_noted_shown_replaced_and_forgotten(distributor, client):
    await distributor.brokers("a", mcap=2000)
    noted = (await client.put("/v1/brokers/a/capacity", json=STRICT)).json()
    assert (noted["mcap"], noted["mcap_stated"], noted["rcap"]) == (500.0, 2000.0, 500.0)
    (known,) = noted["capacities"]
    assert parse_capacity(known) == parse_capacity(STRICT)
    again = (await client.put("/v1/brokers/a/capacity", json={**STRICT, "mcap": 700.0})).json()
    assert [one["mcap"] for one in again["capacities"]] == [700.0]
    other = (await client.put("/v1/brokers/a/capacity", json={**STRICT, "batch": 10})).json()
    assert [one["mcap"] for one in other["capacities"]] == [700.0, 500.0]
    assert (await client.get("/v1/brokers/a/capacity")).json() == other
    assert (await client.get("/v1/brokers/a")).json()["capacities"] == other["capacities"]
    assert (await client.delete("/v1/brokers/a/capacity")).status_code == 204
    assert (await client.get("/v1/brokers/a/capacity")).json()["capacities"] == []


async def test_what_breaks_a_rule_or_names_no_broker_is_refused_and_changes_nothing(distributor, client):
    await distributor.brokers("a")
    refused = await problem(await client.put("/v1/brokers/a/capacity", json={**STRICT, "mcap": -1}), 400)
    assert (refused["field"], refused["value"]) == ("mcap", -1)
    await problem(await client.put("/v1/brokers/nobody/capacity", json=STRICT), 404)
    await problem(await client.get("/v1/brokers/nobody/capacity"), 404)
    await problem(await client.delete("/v1/brokers/nobody/capacity"), 404)
    assert distributor.registry.capacities == {}


async def test_topics_are_placed_by_what_was_measured_for_their_promise(distributor):
    await distributor.brokers("a", "b", "c", mcap=2000)
    registry = distributor.registry
    for name in ("a", "b", "c"):
        await registry.set_capacity(name, capacity(400.0, "p99:5ms"))
        await registry.set_capacity(name, capacity(1500.0, "p99:50ms"))
    patient = spec(slo={"percentile": 99, "latency_ms": 50})
    _, placement, _ = await registry.dry_run(patient)
    assert len(placement.brokers) == 1
    _, placement, _ = await registry.dry_run(spec())
    assert len(placement.brokers) == 3


async def test_the_strictest_promise_on_a_broker_decides_for_all_that_comes_there(distributor):
    await distributor.brokers("a", mcap=2000)
    registry = distributor.registry
    await registry.set_capacity("a", capacity(400.0, "p99:5ms"))
    await registry.set_capacity("a", capacity(1500.0, "p99:50ms"))
    await registry.submit(spec("strict", count=10))
    (offered,) = registry.offered(spec("patient", slo={"percentile": 99, "latency_ms": 50}))
    assert (offered.mcap, offered.allocated, offered.rcap) == (400.0, 100.0, 300.0)


async def test_a_topic_that_found_no_room_is_placed_once_more_is_known(distributor, autojump_clock, no_threads):
    (broker,) = await distributor.brokers("a", mcap=2000)
    registry: Registry = distributor.registry
    await registry.set_capacity("a", capacity(400.0))
    await registry.submit(spec())
    assert registry.topic("cars").placement.state == "partial"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.run)
        nursery.start_soon(broker.run)
        await registry.set_capacity("a", capacity(1500.0))
        await trio.sleep(10)
        assert registry.topic("cars").placement.state == "placed"
        nursery.cancel_scope.cancel()


async def test_capacities_survive_a_restart_and_go_with_the_broker(tmp_path):
    path = tmp_path / "store.sqlite3"
    opened = await Distributor.open(path)
    await opened.brokers("a", "b")
    await opened.registry.set_capacity("a", capacity(400.0))
    await opened.registry.set_capacity("b", capacity(300.0))
    await opened.registry.forget("b")
    await opened.aclose()
    again = await Distributor.open(path)
    assert again.registry.capacities == {"a": (capacity(400.0),)}
    with pytest.raises(NotFound):
        await again.registry.set_capacity("b", capacity(1.0))
    await again.aclose()


async def test_a_plan_says_what_is_left_by_what_was_measured(distributor, client):
    await distributor.brokers("a", mcap=2000)
    await client.put("/v1/brokers/a/capacity", json={**STRICT, "mcap": 1200.0})
    plan = (await client.post("/v1/plan", json=TOPIC)).json()
    assert plan["admitted_afterwards"]["largest_topic"] == pytest.approx(200.0)
