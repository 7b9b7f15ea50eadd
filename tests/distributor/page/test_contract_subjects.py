"""The heaviest subjects of a contract: whom the distributor asks, and how it adds up what they tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
import trio

from distributor.api.app import make_app
from distributor.page.contract_subjects import MOST_BROKERS, MOST_SUBJECTS, heaviest, most_asked
from distributor.sync.sessions import BrokerSession
from srtm.contracts.contract import read_contract
from srtm.control import ContractCounts, ContractSubject, SyncRequest
from tests.support.broker_admin import Admin
from tests.support.distributor_in_process import Distributor
from tests.support.http_server import serve_http

KEY = ("sensors", "*")
POLICIES = [{"name": "burst", "rate": 10, "burst": 5}, {"name": "day", "kind": "window", "quota": 50, "window": "1d"}]
PATH = "/v1/contract-subjects/sensors/*"


@pytest.fixture
async def distributor(tmp_path: Path) -> AsyncIterator[Distributor]:
    opened = await Distributor.open(tmp_path / "s.sqlite3")
    contracts = [
        read_contract({"namespace": "sensors", "subject": name, "policies": POLICIES}) for name in ("*", "own")
    ]
    await opened.registry.put_contracts(contracts)
    yield opened
    await opened.aclose()


def told(subject: str, checks: int, *remaining: int, contract: str = "*") -> ContractSubject:
    return ContractSubject(subject=subject, contract=contract, checks=checks, remaining=list(remaining))


def test_what_brokers_tell_adds_up_and_the_least_that_remains_is_shown() -> None:
    rows = heaviest([told("a", 32, 4, 9), told("b", 48, 1, 2), told("a", 32, 5, 3)], ["burst", "day"])
    assert [(row.subject, row.checks, row.remaining, row.brokers) for row in rows] == [
        ("a", 64, {"burst": 4, "day": 3}, 2),
        ("b", 48, {"burst": 1, "day": 2}, 1),
    ]


def test_a_broker_that_has_the_contract_before_the_last_change_is_no_error() -> None:
    assert heaviest([told("a", 16, 4)], ["burst", "day"])[0].remaining == {"burst": 4}


def test_not_more_than_the_heaviest_are_told() -> None:
    rows = heaviest([told(str(number), 16 * number) for number in range(1, 40)], [])
    assert [row.subject for row in rows] == [str(number) for number in range(39, 39 - MOST_SUBJECTS, -1)]


async def test_those_are_asked_that_counted_the_most(distributor: Distributor) -> None:
    syncing = distributor.syncing
    for number in range(40):
        session = BrokerSession(contract_counts={KEY: [(number, 1, 9), (number, 0, 9)]} if number % 2 else {})
        syncing.sessions.by_broker[f"b{number}"] = session
    assert most_asked(syncing, KEY) == [f"b{number}" for number in range(39, 39 - 2 * MOST_BROKERS, -2)]
    assert most_asked(syncing, ("sensors", "own")) == []


async def test_brokers_are_asked_and_who_does_not_answer_is_named(
    distributor: Distributor, nursery: trio.Nursery
) -> None:
    here = Admin()
    heavy = [told("a", 32, 4, 9), told("own", 64, 1, 1, contract="own")]
    here.engine.heaviest = {"sensors": [msgspec.to_builtins(each) for each in heavy]}
    address = await serve_http(nursery, here.handler)
    for name, http_address in (("near", address), ("away", "127.0.0.1:9")):
        counts = [ContractCounts(namespace="sensors", subject="*", counts=[(7, 0, 7), (7, 0, 7)])]
        request = SyncRequest(
            incarnation="1", srtm_version="0", tcp_address=f"{name}:1", http_address=http_address, mcap=9.0,
            contracts=0, contract_counts=counts,
        )  # fmt: skip
        await distributor.syncing.sync(name, request)
    app = make_app(distributor.registry, distributor.syncing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        found = (await http.get(PATH)).json()
        assert found["rows"] == [{"subject": "a", "checks": 32, "remaining": {"burst": 4, "day": 9}, "brokers": 1}]
        assert sorted(found["asked"]) == ["away", "near"]
        assert list(found["silent"]) == ["away"]
        assert (await http.get(f"{PATH}none")).status_code == 404
    nursery.cancel_scope.cancel()
