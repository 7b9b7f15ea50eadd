"""Nodes that find each other by a distributor, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing
from fastapi import FastAPI

from distributor.api.limit_node_routes import add_limit_node_routes
from limiting.config import LimitConfig
from limiting.discovery import Discovery, page_url
from limiting.nodes.links import nodes_of
from srtm.client.distributor import DistributorClient
from srtm.errors import BadInput
from srtm.log import Log
from srtm.web.refusals import add_refusals

URLS = ("http://d",)


class Distributor(httpx.AsyncBaseTransport):
    """``is_up``: whether it answers. ``restart``: it has forgotten everything."""

    def __init__(self) -> None:
        self.is_up = True
        self.restart()

    def restart(self) -> None:
        app = FastAPI()
        add_limit_node_routes(app)
        add_refusals(app)
        self._app = httpx.ASGITransport(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.is_up:
            raise httpx.ConnectError("refused")
        return await self._app.handle_async_request(request)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.key"
    file.write_text("k" * 32)
    return file


def config(name: str, key: Path, **changes: object) -> LimitConfig:
    settings: dict[str, object] = {
        "node": name,
        "distributor": URLS,
        "nodes": 2,
        "peers_address": f"10.0.0.{ord(name)}:4197",
        "cluster_key_file": str(key),
    }
    return LimitConfig(**{**settings, **changes})  # type: ignore[arg-type]


async def test_nodes_wait_for_one_another_and_have_the_same_list(
    autojump_clock: trio.testing.MockClock, key: Path
) -> None:
    distributor = Distributor()
    distributor.is_up = False
    found: dict[str, LimitConfig] = {}

    async def start(node: str) -> None:
        async with DistributorClient(URLS, transport=distributor, timeout_s=1) as client:
            found[node] = await Discovery(config(node, key), client, Log("limit")).found()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start, "a")
        await trio.sleep(10)
        distributor.is_up = True
        await trio.sleep(10)
        assert found == {}, "one of two is there"
        nursery.start_soon(start, "b")
    for name, settings in found.items():
        assert settings.peers == "a=10.0.0.97:4197,b=10.0.0.98:4197"
        nodes = nodes_of(settings)
        assert nodes is not None
        assert (nodes.members.own, nodes.mode) == (name, "replicated")


async def test_a_distributor_that_has_forgotten_is_told_again(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, key: Path
) -> None:
    distributor, log = Distributor(), list[str]()
    async with DistributorClient(URLS, transport=distributor, timeout_s=1) as client:
        nodes = [Discovery(config(name, key), client, Log("limit", log.append)) for name in "ab"]
        for each in nodes:
            nursery.start_soon(each.run, "10.0.0.1:4196", lambda _: None)
        await trio.sleep(6)
        distributor.is_up = False
        await trio.sleep(20)
        distributor.restart()
        distributor.is_up = True
        await trio.sleep(8)
        assert len(log) == 4, "each says once that the distributor is away, and that it is back"
        assert (await nodes[0].found()).peers == "a=10.0.0.97:4197,b=10.0.0.98:4197"
        nursery.cancel_scope.cancel()


async def test_who_comes_later_knows_all_and_is_found_by_those_that_run(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, key: Path
) -> None:
    met: list[Mapping[str, str]] = []
    async with DistributorClient(URLS, transport=Distributor(), timeout_s=1) as client:
        first, *others = (Discovery(config(name, key), client, Log("limit")) for name in "abc")
        nursery.start_soon(first.run, "10.0.0.1:4196", met.append)
        await trio.sleep(1)
        for each in others:
            await client.tell_limit_node(*each._own)
        assert (await first.found()).peers == "a=10.0.0.97:4197,b=10.0.0.98:4197,c=10.0.0.99:4197"
        await trio.sleep(6)
        assert [set(nodes) for nodes in met] == [{"a"}, {"a", "b", "c"}]
        nursery.cancel_scope.cancel()


async def test_a_node_that_serves_tells_where_its_page_is(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, key: Path
) -> None:
    distributor = Distributor()
    told = config("a", key, http_address="0.0.0.0:0")
    async with (
        DistributorClient(URLS, transport=distributor, timeout_s=1) as client,
        httpx.AsyncClient(transport=distributor, base_url="http://d") as http,
    ):
        nursery.start_soon(Discovery(told, client, Log("limit")).run, "0.0.0.0:4321", lambda _: None)
        await trio.sleep(1)
        [cluster] = (await http.get("/v1/limit-nodes")).json().values()
        assert cluster == {"a": {"address": "10.0.0.97:4197", "page": "http://10.0.0.97:4321/"}}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"http_address": "10.0.0.1:0"}, "http://10.0.0.1:4321/"),
        ({"http_address": "limits.example:4196", "tls_cert": "c", "tls_key": "k"}, "https://limits.example:4321/"),
        ({"http_address": ":4196"}, "http://10.0.0.97:4321/"),
        ({"http_address": "[::]:4196"}, "http://10.0.0.97:4321/"),
        ({"http_address": "127.0.0.1:4196"}, None),
        ({"http_address": "localhost:4196"}, None),
        ({"http_address": "127.0.0.1:4196", "peers_address": "127.0.0.1:4197"}, "http://127.0.0.1:4321/"),
    ],
)
def test_a_page_is_where_others_reach_the_node_if_they_do(
    key: Path, changes: dict[str, object], expected: str | None
) -> None:
    assert page_url(config("a", key, **changes), "10.9.9.9:4321") == expected


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"peers": "a=h:1,b=h:2"}, "peers"),
        ({"node": None}, "node"),
        ({"peers_address": None}, "peers_address"),
        ({"nodes": 1}, "nodes"),
        ({"nodes": 65}, "nodes"),
        ({"cluster_key_file": None}, "cluster_key_file"),
    ],
)
def test_settings_that_cannot_find_others_are_refused(key: Path, changes: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        config("a", key, **changes)
    assert caught.value.field == field
