"""The OpenAPI document: that it is whole, that the types of answers are those that it is made from, and bytes that are
no document. Invented input: ``test_conformance.py``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio
from starlette.routing import Route

from distributor.api.app import make_app
from distributor.api.openapi import ANSWERS, PROBLEM
from distributor.page.observer import Observer
from srtm.contracts.contract import read_contract
from srtm.control import Problem
from srtm.topics import json_schema as shapes
from tests.support.distributor_in_process import Distributor, spec

CONTRACT: dict[str, Any] = {
    "namespace": "sensors",
    "subject": "*",
    "policies": [{"name": "burst", "rate": 1, "burst": 2}],
}


class Service:
    """A distributor in a trio run of its own, asked from this thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._end = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        assert self._ready.wait(20)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        settings_ = {"longest_wait_s": 0.001, "max_body_bytes": 4096, "liveness_s": 60.0}
        opened = await Distributor.open(self._folder / "s.sqlite3", **settings_)
        await opened.brokers("a", "b")
        await opened.submit(spec(count=20))
        await opened.registry.put_contracts([read_contract(CONTRACT)])
        app = make_app(opened.registry, opened.syncing, observer=Observer(opened.registry, opened.syncing))
        self.document = app.openapi()
        self.routes = {
            (method, route.path.replace(":path}", "}"))
            for route in app.routes
            if isinstance(route, Route) and route.include_in_schema
            for method in route.methods or ()
        }
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://d", timeout=30) as self.client:
            self._ready.set()
            await self._end.wait()
        await opened.aclose()

    def ask(self, method: str, path: str, **given_: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            return await self.client.request(method, path, **given_)

        return trio.from_thread.run(ask, trio_token=self._token)

    def end(self) -> None:
        trio.from_thread.run_sync(self._end.set, trio_token=self._token)
        self._thread.join(30)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path)
    yield started
    started.end()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(method.upper(), path): one for path, ones in document["paths"].items() for method, one in ones.items()}


def test_every_route_is_described_with_its_answer_and_its_refusals(service: Service) -> None:
    found = operations(service.document)
    assert found.keys() == service.routes == ANSWERS.keys()
    for (method, path), operation in found.items():
        statuses = {int(status) for status in operation["responses"]}
        assert 422 not in statuses  # what FastAPI would answer
        if path.startswith("/v1/"):
            assert {400, 401, 403, 503} <= statuses, path
            assert ("{name" in path) == (404 in statuses), path
            assert (method != "GET") == (409 in statuses), path
            assert ("requestBody" in operation) == (413 in statuses), path
            assert operation["security"] == [{"token": []}]
            assert "Scopes: operator" in operation["description"]


def test_every_reference_leads_somewhere(service: Service) -> None:
    text = json.dumps(service.document)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= service.document["components"]["schemas"].keys()
    assert "Problem" in names


KNOWN = {"topics": "cars", "brokers": "a", "limit-nodes": "n"}
TOPIC = {"rate": 50, "burst": 5, "slo": {"percentile": 99, "latency_ms": 5}, "publishers": [{"count": 3, "rate": 2}]}
BROKER = {
    "incarnation": "1",
    "srtm_version": "1",
    "tcp_address": "h:1",
    "http_address": "h:2",
    "mcap": 9,
    "claims": ["a its directory"],
    "topics": [],
}
MEASURED = {"incarnation": "1", "sequence": 1, "interval": [0], "count": [1], "late": [0], "latency_ns": [5]}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/contracts": {"contracts": [CONTRACT]},
    "/v1/contracts/{namespace}/{pattern}": CONTRACT,
    "/v1/topics": {"name": "vans", **TOPIC},
    "/v1/topics/{name}/plan": TOPIC,
    "/v1/plan": {"name": "vans", **TOPIC, "burst": "auto"},
    "/v1/topic-files": {"text": "rate = 1", "csv": {}},
    "/v1/contract-files": {"text": "contracts = []"},
    "PUT /v1/topics/{name}": TOPIC,
    "PATCH /v1/topics/{name}": {"mode": "proportional", "split": "fitted"},
    "/v1/topics/{name}/publishers": {"add": [{"id": "x", "rate": 0.1}], "remove": ["p1"]},
    "/v1/brokers/{name}/sync": BROKER,
    "/v1/brokers/{name}/dead": {"incarnation": "1", "reason": "it exited"},
    "/v1/brokers/{name}/capacity": {"mcap": 100, "slo": {"percentile": 99, "latency_ms": 5}},
    "/v1/brokers/{name}/history": {"incarnation": "1", "topics": []},
    "/v1/brokers/{name}/measurements/{id}": MEASURED,
    "/v1/shares": {"proposals": [{"topic": "cars", "version": 1, "mode": "proportional", "shares": {}}]},
}


def target_of(path: str) -> str:
    """The path with what the service knows."""
    known = KNOWN.get(path.split("/")[2], "") if path.startswith("/v1/") else ""
    names = {"name": known, "publisher_id": "p1", "id": "1", "namespace": CONTRACT["namespace"], "pattern": "*"}
    return path.format(cluster="c", **names)


HOSTILE = {"deep": (b"[" * 4000, 400), "not text": (b"\xff\xfe{", 400), "long": (b'"' + b"x" * 5000 + b'"', 413)}


# httpx leaves the generator of a body to the collector where a route refuses without reading it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_document_is_refused_by_every_operation_that_takes_one(service: Service, case: str) -> None:
    content, status = HOSTILE[case]
    for (method, path), operation in operations(service.document).items():
        if "requestBody" in operation and (method, path) not in REFUSED:
            target = target_of(path)
            answer = service.ask(method, target, content=content)
            told = (method, target, answer.status_code, answer.text)
            assert answer.status_code == status, told
            check_answer(answer, operation["responses"][str(status)], None, told)


def check_answer(answer: httpx.Response, described: dict[str, Any], kind: Any, told: object) -> None:
    kinds = described.get("content", {})
    if not kinds:
        assert answer.content == b"", told
        return
    (media,) = kinds
    assert answer.headers["Content-Type"].startswith(media), told
    if media == PROBLEM:
        problem = msgspec.json.decode(answer.content, type=Problem)
        assert problem.status == answer.status_code
        assert problem.detail
        assert answer.status_code != 400 or (problem.field and problem.rule), told
    elif answer.is_success and media == "application/json":
        msgspec.json.decode(answer.content, type=kind)


# Not now: no fitting runs, the others have no room, no broker answers.
REFUSED = {
    ("GET", "/v1/brokers/{name}/mqtt/sessions"): 503,
    ("GET", "/v1/brokers/{name}/mqtt/session"): 503,
    ("DELETE", "/v1/brokers/{name}/mqtt/session"): 503,
    ("POST", "/v1/brokers/{name}/measurements/{id}"): 503,
    ("POST", "/v1/brokers/{name}/drain"): 409,
}


QUERIES = {
    "/v1/brokers/{name}/mqtt/session": {"client": "lamp"},
    "/v1/limit-nodes/{cluster}/{name}": {"address": "h:1"},
    "/lookup": {"topic": "cars"},
    "/channels": {"topic": "cars"},
    "/topic/create": {"topic": "new"},
    "/topic/delete": {"topic": "new"},
    "/topic/tombstone": {"topic": "new", "node": "127.0.0.1:4151"},
    "/channel/create": {"topic": "new", "channel": "all"},
    "/channel/delete": {"topic": "new", "channel": "all"},
}


def test_a_good_request_of_every_operation_is_answered_with_its_shape(service: Service) -> None:
    found = operations(service.document)
    order = ["GET", "POST", "PATCH", "PUT", "DELETE"]
    for method, path in sorted(ANSWERS, key=lambda key: (order.index(key[0]), key[1].endswith("/dead"), -len(key[1]))):
        target = target_of(path)
        body = GOOD.get(f"{method} {path}") or GOOD.get(path) if "requestBody" in found[method, path] else None
        query = QUERIES.get(path, {})
        answer = service.ask(method, target, params=query, json=body)
        told = (method, target, answer.status_code, answer.text)
        assert answer.is_success or answer.status_code == REFUSED.get((method, path)), told
        check_answer(answer, found[method, path]["responses"][str(answer.status_code)], ANSWERS[method, path], told)


def test_what_operators_send_is_described_by_the_models_that_read_it(service: Service) -> None:
    paths, schemas = service.document["paths"], service.document["components"]["schemas"]
    for method, path, required in (
        ("post", "/v1/topics", {"name", "rate", "burst", "slo"}),
        ("put", "/v1/topics/{name}", {"rate", "burst", "slo"}),
        ("patch", "/v1/topics/{name}", set()),
        ("post", "/v1/plan", {"name", "rate", "burst", "slo"}),
        ("post", "/v1/topics/{name}/plan", {"rate", "burst", "slo"}),
        ("patch", "/v1/topics/{name}/publishers", set()),
        ("put", "/v1/brokers/{name}/capacity", {"mcap", "slo"}),
    ):
        refers = paths[path][method]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        shape = schemas[refers.rpartition("/")[2]]
        assert set(shape.get("required", ())) == required
        assert shape["additionalProperties"] is False
    blocks = schemas["Topic"]["properties"]["publishers"]["items"]["anyOf"]
    assert len(blocks) == 3


def test_no_two_shapes_have_one_name() -> None:
    from distributor.api.openapi import _schemas

    assert not _schemas()[1].keys() & shapes.schemas("#/components/schemas/{model}")[1].keys()


def test_every_reference_of_the_document_leads_somewhere(service: Service) -> None:
    text = json.dumps(service.document)
    referred = {part.split('"')[0] for part in text.split('"$ref": "#/components/schemas/')[1:]}
    assert referred <= service.document["components"]["schemas"].keys()
    assert "#/$defs" not in text
