"""Each request has an id: the client's or a new one; answers, refusals and log lines name it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from srtm.errors import BadInput
from srtm.log import REQUEST_ID, Log, LogSettings
from srtm.web.refusals import CheckedFirst, add_refusals, refuse_two_lengths
from srtm.web.request_log import RequestLog


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
async def client(lines: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    app, log = FastAPI(), Log("s", lines.append, LogSettings("debug"))
    add_refusals(app)
    app.add_middleware(CheckedFirst, admit=refuse_two_lengths, closes=True)

    @app.get("/good")
    async def good() -> None:
        log.info("within", topic="cars")

    @app.get("/refused")
    async def refused() -> None:
        raise BadInput("rate", -1, "must be above 0")

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a bug")

    transport = httpx.ASGITransport(app=RequestLog(app, log), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://s") as asking:
        yield asking


async def test_the_id_of_the_client_is_in_the_answer_and_in_the_lines(client, lines):
    answer = await client.get("/good", headers={"X-Request-Id": "abc/1:2"})
    assert answer.headers["X-Request-Id"] == "abc/1:2"
    within, request = lines
    assert within.endswith("INFO: within topic=cars request_id=abc/1:2\n")
    assert re.search(r"DEBUG: request method=GET path=/good status=200 ms=[0-9.]+ request_id=abc/1:2$", request)
    assert REQUEST_ID.get() is None


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, 'x"y', "ü".encode()])
async def test_an_id_that_is_too_long_or_not_plain_is_replaced(client, given):
    answer = await client.get("/good", headers={"X-Request-Id": given})
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])


async def test_ids_that_are_made_differ(client):
    made = {(await client.get("/good")).headers["X-Request-Id"] for _ in range(3)}
    assert len(made) == 3


@pytest.mark.parametrize(("path", "status"), [("/refused", 400), ("/nowhere", 404), ("/broken", 500)])
async def test_a_refusal_names_the_id_in_its_body(client, path, status):
    answer = await client.get(path, headers={"X-Request-Id": "r1"})
    assert (answer.status_code, answer.json()["request_id"], answer.headers["X-Request-Id"]) == (status, "r1", "r1")


async def test_a_refusal_before_any_route_names_it_too(client):
    two = {"Content-Length": "1", "Transfer-Encoding": "chunked", "X-Request-Id": "r1"}
    answer = await client.post("/good", headers=two)
    assert (answer.status_code, answer.json()["request_id"]) == (400, "r1")


async def test_a_bug_is_logged_with_the_id(client, lines):
    await client.get("/broken", headers={"X-Request-Id": "r1"})
    (failure,) = [line for line in lines if "ERROR" in line]
    assert "a request failed because of a bug method=GET path=/broken error=\"RuntimeError('a bug')\"" in failure
    assert failure.endswith("request_id=r1\n")
