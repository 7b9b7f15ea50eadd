"""Request bodies: how long one may take, what all may hold together, and what no document may say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from fastapi import FastAPI
from starlette.types import Message

from distributor.api.app import make_app
from srtm.errors import Unavailable
from srtm.topics.publishers import MOST
from srtm.web.bodies import Budget
from tests.support.distributor_in_process import Distributor

LIMIT_BYTES = 1000
TOPIC = {"name": "t", "rate": 100, "burst": 10, "slo": {"percentile": 99, "latency_ms": 5}}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    opened = await Distributor.open(tmp_path / "s.sqlite3", max_body_bytes=LIMIT_BYTES, body_timeout_s=0.05)
    yield make_app(opened.registry, opened.syncing)
    await opened.aclose()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: dict[str, Any]


async def ask(
    app: FastAPI, method: str, path: str, content: bytes, *, stalls: bool = False, headers: dict[str, str] | None = None
) -> Answer:
    """Of the application itself; a body that ``stalls`` has no end."""
    sent: list[Message] = []
    parts: list[Message] = [{"type": "http.request", "body": content, "more_body": stalls}]

    async def receive() -> Message:
        if not parts:
            await trio.sleep_forever()
        return parts.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "http_version": "1.1"}
    given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    with trio.fail_after(10):
        await app({**scope, "headers": given, "scheme": "http", "server": ("d", 80)}, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    named = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], named, json.loads(body))


def documented(**changes: Any) -> bytes:
    return json.dumps(TOPIC | changes).encode()


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/brokers/b1/sync"])
async def test_a_body_that_stalls_is_given_up_and_so_is_what_it_held(app: FastAPI, path: str) -> None:
    answer = await ask(app, "POST", path, b" " * 900, stalls=True)
    assert (answer.status, answer.body["rule"]) == (408, "must be complete within 0.05 s")
    assert (app.state.budgets.documents.held, app.state.budgets.messages.held) == (0, 0)


async def test_bodies_are_bounded_in_sum_and_brokers_have_a_sum_of_their_own(app: FastAPI) -> None:
    budgets = app.state.budgets
    with budgets.documents.holding() as take:
        take(2 * LIMIT_BYTES - 1)
        refused = await ask(app, "POST", "/v1/plan", documented())
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "bytes of documents" in refused.body["detail"]
        assert (await ask(app, "POST", "/v1/brokers/b1/sync", b"{}")).status == 400
    assert (await ask(app, "POST", "/v1/plan", documented())).status == 200
    assert budgets.documents.held == 0


async def test_publishers_are_bounded_in_sum_before_any_is_made(app: FastAPI) -> None:
    block = {"count": MOST, "rate": 1e-6}
    with app.state.budgets.publishers.holding() as take:
        take(MOST + 1)
        refused = await ask(app, "POST", "/v1/plan", documented(publishers=[block]))
        assert refused.status == 503
        assert "publishers" in refused.body["detail"]
        small = documented(publishers=[{"count": 5, "rate": 1}])
        assert (await ask(app, "POST", "/v1/plan", small)).status == 200
    many = await ask(app, "POST", "/v1/plan", documented(publishers=[block] * 20))
    assert (many.status, many.body["rule"]) == (400, "a topic has at most 10,000,000")
    assert app.state.budgets.publishers.held == 0


def test_a_budget_has_back_what_was_taken_whatever_happens() -> None:
    budget = Budget(10, "bytes")
    why = "requests under way hold 7 bytes, and all together may hold 10"
    with suppress(Unavailable), budget.holding() as take:
        take(3)
        take(4)
        with pytest.raises(Unavailable, match=why):
            take(4)
        take(10)
    assert budget.held == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/topics"),
        ("PUT", "/v1/topics/t"),
        ("PATCH", "/v1/topics/t"),
        ("PATCH", "/v1/topics/t/publishers"),
        ("POST", "/v1/plan"),
        ("POST", "/v1/topics/t/plan"),
        ("PUT", "/v1/brokers/b1/capacity"),
    ],
)
async def test_a_key_that_stands_twice_is_refused(app: FastAPI, method: str, path: str) -> None:
    answer = await ask(app, method, path, documented()[:-1] + b', "rate": 5}')
    assert answer.status == 400
    assert (answer.body["field"], answer.body["rule"]) == ("rate", "must not stand twice in one object")


async def test_a_body_with_two_lengths_is_refused_whoever_answers(app: FastAPI) -> None:
    headers = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    for path in ("/v1/plan", "/v1/brokers/b1/sync", "/nowhere", "/ping"):
        answer = await ask(app, "POST", path, b"{}", headers=headers)
        assert (answer.status, answer.body["field"]) == (400, "Transfer-Encoding"), path
