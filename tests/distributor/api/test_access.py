"""Which token may use which route of the distributor: every route, every scope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import Request
from starlette.datastructures import URL
from starlette.routing import Route

from distributor.api.access import Access, scopes
from distributor.api.app import make_app
from srtm.errors import Unauthorized
from srtm.net.tokens import Tokens
from tests.support.distributor_in_process import Distributor

TOKENS = "operator ann o\nbroker name b\nbroker b2 b2\nclient cars c\n"
OPEN = {"/ping", "/healthz", "/lookup", "/topics", "/channels", "/nodes", "/info"}
OPEN |= {"/", "/page/{name}", "/session"}
BROKERS = {("POST", f"/v1/brokers/{{name}}/{what}") for what in ("sync", "history", "measurements/{id}", "dead")}
CLIENTS = {("GET", "/v1/topics/{name}/publishers/{publisher_id:path}")}
ANYBODYS = {("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/docs")}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Distributor]:
    opened = await Distributor.open(tmp_path / "s.sqlite3", tokens=Tokens.parsed("tokens", TOKENS))
    yield opened
    await opened.aclose()


def routes(distributor: Distributor) -> list[tuple[str, str]]:
    app = make_app(distributor.registry, distributor.syncing)
    return [
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in sorted(route.methods or ())
    ]


def client(distributor: Distributor) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(distributor.registry, distributor.syncing))
    return httpx.AsyncClient(transport=transport, base_url="http://d")


async def statuses(http: httpx.AsyncClient, method: str, path: str) -> dict[str, int]:
    """{token: the status that it gets}; "" is nobody's."""
    found = {}
    for token in ("", "wrong", "o", "b", "c"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await http.request(method, path.replace("{", "").replace("}", ""), headers=headers)
        if answer.status_code in (401, 403) and method != "HEAD":
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json()["title"] == {401: "unauthorized", 403: "forbidden"}[answer.status_code]
            assert ("WWW-Authenticate" in answer.headers) == (answer.status_code == 401)
        found[token] = answer.status_code
    return found


async def test_every_route_asks_for_the_token_that_the_documents_say(guarded: Distributor) -> None:
    async with client(guarded) as http:
        for method, path in routes(guarded):
            got = await statuses(http, method, path)
            if path in OPEN:
                assert not {401, 403} & {*got.values()}, (method, path)
                continue
            assert (got[""], got["wrong"]) == (401, 401), (method, path)
            assert got["o"] not in (401, 403), (method, path)
            refused = {token for token in "bc" if got[token] == 403}
            also = scopes(method, path)
            assert refused == {token for token, scope in (("b", "broker"), ("c", "client")) if scope not in also}


async def test_a_brokers_token_speaks_for_no_other_broker(guarded: Distributor) -> None:
    named = [(method, path) for method, path in routes(guarded) if path.startswith("/v1/brokers/{name}")]
    assert {*BROKERS} <= {*named}
    async with client(guarded) as http:
        for method, path in named:
            answer = await http.request(
                method, path.format(name="name", id="id"), headers={"Authorization": "Bearer b2"}
            )
            assert answer.status_code == 403, (method, path)
            if (method, path) in BROKERS:
                assert "the token of 'b2' does not speak for broker 'name'" in answer.json()["detail"]


async def test_a_brokers_token_tells_of_no_other_limit_node(guarded: Distributor) -> None:
    async with client(guarded) as http:
        found = {}
        for token in ("b2", "b", "o"):
            headers = {"Authorization": f"Bearer {token}"}
            answer = await http.put("/v1/limit-nodes/one/name", params={"address": "h:1"}, headers=headers)
            found[token] = answer.status_code
    assert found == {"b2": 403, "b": 200, "o": 200}


async def test_what_is_not_for_operators_alone_is_named_here(guarded: Distributor) -> None:
    assert {*BROKERS, *CLIENTS, *ANYBODYS} <= {*routes(guarded)}  # or a route has another name now
    for method, path in BROKERS:
        assert scopes(method, path) == ("broker",)
    for method, path in CLIENTS:
        assert scopes(method, path) == ("client", "broker")
    for method, path in ANYBODYS:
        assert set(scopes(method, path)) == {"operator", "broker", "client"}
    for path in ("/v1/topics", "/v1/topics/{name}", "/v1/brokers/{name}/drain"):
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
            assert scopes(method, path) == ()


async def test_whoever_has_a_token_is_told_what_is_not_there(guarded: Distributor) -> None:
    async with client(guarded) as http:
        assert await statuses(http, "GET", "/nope") == {"": 401, "wrong": 401, "o": 404, "b": 404, "c": 404}
        assert await statuses(http, "PATCH", "/v1/brokers") == {"": 401, "wrong": 401, "o": 405, "b": 405, "c": 405}


@pytest.mark.parametrize("host", ["d/ping?", "d/ping#", "u@d/healthz?x="])
async def test_a_host_header_opens_no_path(guarded: Distributor, host: str) -> None:
    class Trusting(Request):
        """As frameworks were that took the header for whatever it said."""

        @property
        def url(self) -> URL:
            return URL(f"http://{host}{self.scope['path']}")

    scope = {"type": "http", "method": "GET", "path": "/v1/topics", "headers": [(b"host", host.encode())]}
    access = Access(Tokens.parsed("tokens", TOKENS), make_app(guarded.registry, guarded.syncing).routes)
    with pytest.raises(Unauthorized):
        await access.check(Trusting(scope))
