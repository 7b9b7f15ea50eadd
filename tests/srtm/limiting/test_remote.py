"""A program's limits: here, or of a limit service, which may be away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.client.limit_service import BlockingLimitClient, LimitClient
from srtm.contracts.contract import read_contracts
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.limiting.answers import Answer
from srtm.limiting.limiter import Limiter
from srtm.limiting.local import LocalLimits
from srtm.limiting.remote import BlockingRemoteLimits, RemoteLimits
from tests.srtm.limiting.conftest import CONTRACTS, Clock
from tests.support.both_loops import both_loops

S = 10**9


def application(clock: Clock) -> Any:
    """The limit service's, with the contracts of this folder."""
    decisions = Decisions(Limiter(clocks=clock))
    store = ContractStore(decisions)
    store.put_all(read_contracts(CONTRACTS))
    return make_app(Parts(decisions, store, LimitConfig()))


Reach = Callable[[Any], None]


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Reach:
    """Makes remote limits ask an ASGI application, or a function that answers."""

    def reaching(service: Any) -> None:
        is_application = hasattr(service, "router")
        transport = httpx.ASGITransport(app=service) if is_application else httpx.MockTransport(service)
        monkeypatch.setattr(RemoteLimits, "_kind", staticmethod(partial(LimitClient, transport=transport)))
        blocking = staticmethod(partial(BlockingLimitClient, transport=transport))
        monkeypatch.setattr(BlockingRemoteLimits, "_kind", blocking)

    return reaching


def same(one: Answer, other: Answer) -> bool:
    return one._replace(grant=None) == other._replace(grant=None)


async def test_a_service_answers_as_the_program_itself_would(reach: Reach, limits: LocalLimits, clock: Clock) -> None:
    reach(application(clock))
    async with RemoteLimits("http://limit") as remote:
        for namespace in ("api", "jobs", "paced"):
            for _ in range(4):
                here, there = limits.check(namespace, "a"), await remote.check(namespace, "a")
                assert same(here, there)
                assert (here.grant is None) == (there.grant is None)


async def test_a_service_takes_corrections_and_releases(reach: Reach, clock: Clock) -> None:
    reach(application(clock))
    async with RemoteLimits("http://limit") as remote:
        opened = await remote.check("jobs", "a")
        assert opened.is_open
        assert not (await remote.check("jobs", "a")).allowed
        await remote.release(opened.grant or "")
        assert (await remote.check("jobs", "a")).allowed
        await remote.correct((await remote.check("api", "a")).grant or "", 4)
        assert not (await remote.check("api", "a")).allowed
        await remote.aclose()
        assert (await remote.check("api", "b")).allowed, "it connects again"


async def test_headers_are_chosen_here(reach: Reach, clock: Clock) -> None:
    reach(application(clock))
    async with RemoteLimits("http://limit", families=["x-ratelimit"]) as remote:
        names = [name for name, _ in (await remote.check("api", "a")).headers]
        assert names == ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]


class Away:
    """A service that is there or not, and counts who asks."""

    def __init__(self) -> None:
        self.is_there = False
        self.asked = 0
        self.now = 0

    def __call__(self, _: httpx.Request) -> httpx.Response:
        self.asked += 1
        if not self.is_there:
            raise httpx.ConnectError("refused")
        said = {"allowed": True, "wait_s": 0, "grant": None, "headers": {}, "subjects": [], "violated": []}
        return httpx.Response(200, content=msgspec.json.encode(said))

    def clock_ns(self) -> int:
        return self.now


@both_loops
async def test_three_requests_wait_for_a_service_that_is_away_and_then_one_a_second(reach: Reach) -> None:
    away = Away()
    reach(away)
    async with RemoteLimits("http://limit", clock_ns=away.clock_ns) as remote:
        said = [await remote.check("api", "a") for _ in range(50)]
        assert all(answer.allowed and answer.degraded for answer in said)
        assert away.asked == 3
        away.now, away.is_there = S, True
        assert not (await remote.check("api", "a")).degraded
        assert not (await remote.check("api", "a")).degraded


async def test_limits_that_fail_closed_say_so(reach: Reach) -> None:
    away = Away()
    reach(away)
    async with RemoteLimits("http://limit", clock_ns=away.clock_ns, fail_open=False) as remote:
        for _ in range(5):
            with pytest.raises(Unavailable, match="the limit service cannot be asked"):
                await remote.check("api", "a")
    assert away.asked == 3


def answering(status: int, content: bytes) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, content=content)


PROBLEM = b'{"title": "t", "detail": "d", "field": "contract", "value": "v", "rule": "r", "status": 404}'


def test_threads_are_told_the_same(reach: Reach) -> None:
    away = Away()
    reach(away)
    with BlockingRemoteLimits("http://limit", clock_ns=away.clock_ns) as remote:
        assert [remote.check("api", "a").degraded for _ in range(9)] == [True] * 9
        assert away.asked == 3
        away.now, away.is_there = S, True
        assert not remote.check("api", "a").degraded


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_service_that_answers_nonsense_is_as_good_as_away(reach: Reach, status: int) -> None:
    reach(answering(status, b"<html>"))
    with BlockingRemoteLimits("http://limit") as remote:
        assert remote.check("api", "a").degraded


def test_a_subject_without_a_contract_is_never_let_through_silently(reach: Reach, limits: LocalLimits) -> None:
    reach(answering(404, PROBLEM))
    with BlockingRemoteLimits("http://limit") as remote:
        for each in (remote, limits):
            with pytest.raises(NotFound, match="contract"):
                each.check("nobody", "a")


@pytest.mark.parametrize(("subject", "cost"), [("", 1), ("x" * 65_536, 1), ("a", -1), ("a", 2**32)])
def test_what_cannot_be_asked_is_refused_before_anybody_is_asked(
    reach: Reach, limits: LocalLimits, subject: str, cost: int
) -> None:
    away = Away()
    reach(away)
    with BlockingRemoteLimits("http://limit") as remote:
        for each in (remote, limits):
            with pytest.raises(BadInput):
                each.check("api", subject, cost)
    assert away.asked == 0


def test_a_bad_url_and_a_bad_file_are_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="url"):
        RemoteLimits("limit:1")
    with pytest.raises(BadInput, match="file"):
        LocalLimits.of_file(tmp_path / "none.toml")


def test_subjects_at_rest_leave_memory_by_themselves(limits: LocalLimits, clock: Clock) -> None:
    for number in range(1_000):
        limits.check("api", f"subject {number}")
    for second in range(10, 20):
        clock.now = second * S
        limits.check("api", "another")
    assert limits.limiter.subjects()["api"] == 1
