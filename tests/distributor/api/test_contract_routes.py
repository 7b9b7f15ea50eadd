"""Contracts of brokers by HTTP: a screen of them, a file read, and changes that others' changes stop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from distributor.api.app import make_app
from srtm.contracts.contract_file import read_contract_text
from srtm.control import ContractCounts, SyncRequest
from tests.support.distributor_in_process import Distributor

POLICIES = [{"name": "burst", "rate": 10, "burst": 5}]
PATH = "/v1/contracts/sensors/hall:*"
TEXT = '[[contracts]]\nnamespace = "a"\nsubject = "x"\npolicies = [{ name = "burst", rate = 1, burst = 2 }]\n'


@pytest.fixture
async def client(distributor: Distributor) -> AsyncIterator[httpx.AsyncClient]:
    app = make_app(distributor.registry, distributor.syncing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as opened:
        yield opened


async def test_a_screen_of_the_list_has_what_was_asked_for_with_counts_of_all_brokers(
    distributor: Distributor, client: httpx.AsyncClient
) -> None:
    contracts = [{"namespace": f"n{number:02}", "subject": "*", "policies": POLICIES} for number in range(30)]
    assert (await client.post("/v1/contracts", json={"contracts": contracts})).status_code == 200
    for name in ("a", "b"):
        counts = [ContractCounts(namespace="n07", subject="*", counts=[(3, 2, 9)])]
        request = SyncRequest(
            incarnation="1", srtm_version="0", tcp_address=f"{name}:1", http_address=f"{name}:2", mcap=9.0,
            contracts=0, contract_counts=counts,
        )  # fmt: skip
        await distributor.syncing.sync(name, request)

    async def screen(**query: object) -> tuple[int, int, list[str]]:
        found = (await client.get("/v1/overview/contracts", params=query)).json()
        return found["total"], found["all"], [row["namespace"] for row in found["rows"]]

    assert await screen(offset=28, limit=5) == (30, 30, ["n28", "n29"])
    assert await screen(search="07 *") == (1, 30, ["n07"])
    (row,) = (await client.get("/v1/overview/contracts", params={"search": "n07"})).json()["rows"]
    assert row["counts"] == [{"allowed": 6, "refused": 4, "cost": 18}]
    for query in ({"limit": 501}, {"limit": 0}, {"offset": -1}):
        assert (await client.get("/v1/overview/contracts", params=query)).status_code == 400


async def test_a_contract_file_is_read_and_nothing_is_put_in_force(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/contract-files", json={"text": TEXT})
    assert answer.json()["contracts"] == [contract.to_json() for contract in read_contract_text(TEXT)]
    assert (await client.get("/v1/contracts")).json() == []
    for bad, field in ((TEXT.replace("burst = 2", "burst = 0"), "contracts[0].policies[0].burst"), ("x", "file")):
        refused = await client.post("/v1/contract-files", json={"text": bad})
        assert (refused.status_code, refused.json()["field"]) == (400, field)


async def test_a_change_stops_where_somebody_else_was_faster(client: httpx.AsyncClient) -> None:
    new = {"If-None-Match": "*"}
    first = await client.put(PATH, json={"policies": POLICIES}, headers=new)
    assert first.status_code == 200
    again = await client.put(PATH, json={"policies": POLICIES}, headers=new)
    assert (again.status_code, again.json()["field"]) == (409, "If-None-Match")
    tag = {"If-Match": first.headers["ETag"]}
    assert (await client.put(PATH, json={"policies": POLICIES, "shadow": True}, headers=tag)).status_code == 200
    assert (await client.put(PATH, json={"policies": POLICIES}, headers=tag)).status_code == 409
    assert (await client.delete(PATH, headers=tag)).status_code == 409
    both = await client.put(PATH, json={"policies": POLICIES}, headers={**tag, **new})
    assert (both.status_code, both.json()["field"]) == (400, "If-Match")
    assert (await client.get(PATH)).json()["shadow"] is True
