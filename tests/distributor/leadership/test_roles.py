"""Roles of one distributor, in this process: the lock is in memory, the store is SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import trio

from distributor.config import DistributorConfig
from distributor.leadership.election import ASK_S, SESSION_TIMEOUT_S
from distributor.leadership.roles import Roles
from distributor.storage.store import Store
from srtm.log import Log
from tests.support.fake_lock import Lock

TOPIC = {
    "rate": 10,
    "burst": 2,
    "slo": {"percentile": 99, "latency_ms": 5},
    "publishers": [{"count": 1, "rate": 5}],
}


class Rig:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = Lock()
        self.lines: list[str] = []
        log = Log("d", self.lines.append)
        self.roles = Roles(store, DistributorConfig(), self.lock.election(), "http://me", log)

    async def ask(self, method: str, path: str, **body: object) -> httpx.Response:
        transport = httpx.ASGITransport(self.roles.front_door, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://d") as client:
            return await client.request(method, path, **body)

    async def comes_to(self, role: str) -> None:
        with trio.fail_after(20):
            while (await self.ask("GET", "/healthz")).json().get("role") != role:
                await trio.lowlevel.checkpoint()

    def said(self, what: str) -> int:
        return sum(what in line for line in self.lines)


@pytest.fixture
async def rig(tmp_path) -> AsyncIterator[Rig]:
    store = await Store.open(f"sqlite:///{tmp_path / 's.sqlite3'}")
    yield Rig(store)
    await store.aclose()


async def test_it_stands_by_until_the_lock_is_free_then_leads(rig, nursery):
    rig.lock.is_free = False
    nursery.start_soon(rig.roles.run)
    await rig.roles.decided.wait()
    assert (await rig.ask("PUT", "/v1/topics/cars", json=TOPIC)).status_code == 503
    rig.lock.is_free = True
    await rig.comes_to("leader")
    assert (await rig.ask("PUT", "/v1/topics/cars", json=TOPIC)).status_code == 200


async def test_once_the_lock_is_free_it_leads_by_its_next_question(rig, nursery, no_threads, autojump_clock):
    rig.lock.is_free = False
    nursery.start_soon(rig.roles.run)
    await trio.sleep(ASK_S * 10.5)
    standby = (await rig.ask("GET", "/healthz")).json()
    assert standby["role"] == "standby"
    rig.lock.is_free = True
    await trio.sleep(ASK_S)
    health = (await rig.ask("GET", "/healthz")).json()
    assert (health["role"], health["instance"]) == ("leader", standby["instance"])
    assert SESSION_TIMEOUT_S + ASK_S < 3  # what a leader that hangs costs, before its book is read


@pytest.mark.slow
async def test_a_term_that_follows_another_begins_with_what_is_stored(rig, nursery):
    nursery.start_soon(rig.roles.run)
    await rig.comes_to("leader")
    assert (await rig.ask("PUT", "/v1/topics/cars", json=TOPIC)).status_code == 200
    first = await rig.store.edition()
    rig.lock.is_away = True  # the connection is lost, and stays so
    rig.lock.wake()
    await rig.comes_to("standby")
    assert (await rig.ask("DELETE", "/v1/topics/cars")).status_code == 503
    with trio.fail_after(20):
        while not rig.said("stands by without the store"):
            await trio.lowlevel.checkpoint()
    rig.lock.is_away = False
    await rig.comes_to("leader")
    assert [one["name"] for one in (await rig.ask("GET", "/v1/topics")).json()] == ["cars"]
    assert (await rig.store.edition()).term == first.term + 1
    assert rig.said("does not lead any more") == 1
    assert rig.said("stands by without the store") == 1


async def test_a_lead_that_is_not_sure_refuses_before_it_is_known_to_be_lost(rig, nursery):
    nursery.start_soon(rig.roles.run)
    await rig.comes_to("leader")
    rig.lock.advance(3600)  # it was stopped
    answer = await rig.ask("PUT", "/v1/topics/cars", json=TOPIC)
    assert (answer.status_code, answer.json()["title"]) == (503, "standby")
    rig.lock.wake()


async def test_a_change_of_which_nobody_knows_whether_it_was_made_ends_the_term(rig, nursery):
    nursery.start_soon(rig.roles.run)
    await rig.comes_to("leader")
    before = await rig.store.edition()
    rig.store.doubtful.set()
    with trio.fail_after(20):
        while (await rig.store.edition()).term == before.term:
            await trio.lowlevel.checkpoint()
    await rig.comes_to("leader")
    assert rig.said("the store is not certain to be as this one left it") == 1
