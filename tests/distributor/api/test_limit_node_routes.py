"""Where nodes of limit services find each other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from distributor.api import limit_node_routes
from distributor.api.limit_node_routes import MOST_NODES, add_limit_node_routes
from srtm.web.refusals import add_refusals


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    add_limit_node_routes(app)
    add_refusals(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as opened:
        yield opened


async def tell(client: httpx.AsyncClient, cluster: str, name: str, address: str = "10.0.0.1:1") -> httpx.Response:
    return await client.put(f"/v1/limit-nodes/{cluster}/{name}", params={"address": address})


async def test_a_node_tells_where_it_is_and_hears_of_its_cluster(client: httpx.AsyncClient) -> None:
    assert (await tell(client, "one", "a", "10.0.0.1:1")).json() == {"a": "10.0.0.1:1"}
    assert (await tell(client, "two", "a", "10.0.0.9:1")).json() == {"a": "10.0.0.9:1"}
    assert (await tell(client, "one", "b", "[::1]:2")).json() == {"a": "10.0.0.1:1", "b": "[::1]:2"}
    assert (await tell(client, "one", "a", "10.0.0.3:1")).json() == {"a": "10.0.0.3:1", "b": "[::1]:2"}
    for name in ("a", "b", "none"):
        assert (await client.delete(f"/v1/limit-nodes/one/{name}")).status_code == 204
    assert (await client.get("/v1/limit-nodes")).json() == {"two": {"a": {"address": "10.0.0.9:1", "page": None}}}


async def test_a_node_may_tell_where_its_page_is_and_those_of_earlier_versions_do_not(
    client: httpx.AsyncClient,
) -> None:
    told = {"address": "10.0.0.1:1", "page": "https://limits.example:4196"}
    assert (await client.put("/v1/limit-nodes/one/a", params=told)).json() == {"a": "10.0.0.1:1"}
    assert (await tell(client, "one", "b", "10.0.0.2:1")).json() == {"a": "10.0.0.1:1", "b": "10.0.0.2:1"}
    assert (await client.get("/v1/limit-nodes")).json()["one"] == {
        "a": {"address": "10.0.0.1:1", "page": "https://limits.example:4196/"},
        "b": {"address": "10.0.0.2:1", "page": None},
    }
    await tell(client, "one", "a", "10.0.0.1:1")  # as an earlier version, after a downgrade
    assert (await client.get("/v1/limit-nodes")).json()["one"]["a"]["page"] is None


@pytest.mark.parametrize(
    "page",
    [
        "",
        "javascript:alert(1)",
        "//h:1/",
        "http://",
        "http://h/",
        "http://h:1/x",
        "http://h:1/?q",
        "http://h:1/#x",
        "http://u@h:1/",
        "http://[:1/",
        "http://h i:1/",
        "ftp://h:1/",
        f"http://{'h.' * 150}:1/",
    ],
)
async def test_a_page_that_no_link_may_lead_to_is_refused(client: httpx.AsyncClient, page: str) -> None:
    answer = await client.put("/v1/limit-nodes/one/a", params={"address": "h:1", "page": page})
    assert (answer.status_code, answer.json()["field"]) == (400, "page")
    assert (await client.get("/v1/limit-nodes")).json() == {}


async def test_what_is_kept_is_bounded(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MOST_NODES):
        assert (await tell(client, "one", f"n{number}")).status_code == 200
    assert (await tell(client, "one", "n0")).status_code == 200
    monkeypatch.setattr(limit_node_routes, "MOST_CLUSTERS", 1)
    for cluster, name, field in (("one", "more", "name"), ("two", "a", "cluster"), ("one", "x" * 65, "name")):
        answer = await tell(client, cluster, name)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert len((await client.get("/v1/limit-nodes")).json()["one"]) == MOST_NODES


@pytest.mark.parametrize("address", ["", "here", "h:x", "h:70000"])
async def test_an_address_that_cannot_be_is_refused(client: httpx.AsyncClient, address: str) -> None:
    answer = await tell(client, "one", "a", address)
    assert (answer.status_code, answer.json()["field"]) == (400, "address")
    assert (await client.get("/v1/limit-nodes")).json() == {}
