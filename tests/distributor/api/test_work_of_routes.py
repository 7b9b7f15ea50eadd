"""What a request costs where there are many topics and brokers, in function calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from distributor.api.app import make_app
from tests.support.function_calls import FunctionCalls, counted
from tests.support.many_topics import seeded

pytestmark = pytest.mark.usefixtures("mock_clock")  # no broker falls silent, however long this takes

OF_ONE = [
    "/v1/topics/topic-1",
    "/v1/topics/topic-1/why",
    "/v1/topics/topic-1/publishers",
    "/v1/brokers/broker-3",
    "/lookup?topic=topic-1",
    "/channels?topic=topic-1",
]
OF_ALL = ["/v1/topics", "/v1/brokers", "/metrics", "/nodes", "/topics"]


@asynccontextmanager
async def asked(path: Path, topics: int, brokers: int) -> AsyncIterator[httpx.AsyncClient]:
    distributor = await seeded(path, topics, brokers)
    app = make_app(distributor.registry, distributor.syncing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        yield http
    await distributor.aclose()


async def calls_of(http: httpx.AsyncClient, route: str) -> FunctionCalls:
    (await http.get(route)).raise_for_status()  # what it goes by is worked out once
    with counted() as calls:
        await http.get(route)
    return calls


async def test_a_request_costs_what_it_asks_for(tmp_path: Path) -> None:
    """Of one topic or broker it is the same, of all as much more as there are more; brokers and browsers wait for a
    turn."""
    async with asked(tmp_path / "few", 200, 20) as few, asked(tmp_path / "many", 800, 80) as many:
        for route in OF_ONE:
            assert (await calls_of(many, route)).total < 1.2 * (await calls_of(few, route)).total, route
        for route in OF_ALL:
            larger, smaller = await calls_of(many, route), await calls_of(few, route)
            assert larger.total < 4.2 * smaller.total, route
            assert larger.longest_turn < 100 * 800, route
