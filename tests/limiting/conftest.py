"""A limit service without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import read_contract
from srtm.limiting.limiter import Limiter
from tests.support.limit_clock import Clock

S = 10**9


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def parts(clock: Clock) -> Parts:
    """Two tokens at once and one a second, for every subject of ``api``; two requests at once in ``jobs``."""
    limiter = Limiter(clocks=clock)
    decisions = Decisions(limiter)
    store = ContractStore(decisions)
    bucket = {"name": "burst", "rate": 1, "burst": 2}
    slots = {"name": "open", "kind": "concurrency", "quota": 2}
    contracts = [("api", bucket), ("jobs", slots)]
    store.put_all(read_contract({"namespace": name, "subject": "*", "policies": [each]}) for name, each in contracts)
    return Parts(decisions, store, LimitConfig(max_body_bytes=100_000))


@pytest.fixture
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_app(parts))
    async with httpx.AsyncClient(transport=transport, base_url="http://limit") as asking:
        yield asking
