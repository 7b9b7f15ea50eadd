"""The split loop inside the distributor, in virtual time: whose shares they are, and how soon they follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import httpx
import pytest
import trio
from trio.testing import MockClock

from distributor.api.app import make_app
from distributor.jobs.split_loop import split_loop
from distributor.sync.history_store import HistoryStore
from distributor.sync.split_owner import CLAIM_S
from srtm.control import HistoryReport, ProposedShare, ShareProposal, TopicHistory, TopicReport
from srtm.log import Log
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec

# A virtual clock would jump on while a thread writes to the store.
pytestmark = pytest.mark.usefixtures("no_threads")

BINS = 10  # of 100 ms, a report


def wall_ns() -> int:
    """The virtual time, as a wall clock."""
    return 1_790_000_000_000_000_000 + round(trio.current_time() * 1e9)


@pytest.fixture
def distributor(distributor: Distributor, monkeypatch: pytest.MonkeyPatch) -> Distributor:
    """Its store writes nothing: virtual time does not stand still while a thread works."""

    async def apply(changes: Iterable[object]) -> None:
        list(changes)

    monkeypatch.setattr(distributor.store, "apply", apply)
    return distributor


@asynccontextmanager
async def running(distributor: Distributor) -> AsyncIterator[None]:
    """The split loop, beside the registry."""
    syncing = distributor.syncing
    syncing.histories = HistoryStore(distributor.registry, wall_ns=wall_ns)
    loop = split_loop(distributor.registry, syncing.histories, syncing.split_owner, Log("test", lambda _line: None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(loop.run)
        yield
        nursery.cancel_scope.cancel()


async def told(distributor: Distributor, rates: dict[str, float], seconds: int, *, waits: bool = False) -> None:
    """Each broker reports once a second that so much came in it, msg/s, and whether all of that waits."""
    for _ in range(seconds):
        await trio.sleep(1.0)
        for name, rate in rates.items():
            await distributor.syncing.take_history(name, _report(rate, waits=waits))


def _report(rate: float, *, waits: bool) -> HistoryReport:
    end_ns = wall_ns() // 100_000_000 * 100_000_000
    arrivals = round(rate / BINS)
    waiting = [arrivals * at * waits for at in range(BINS)]
    history = TopicHistory(
        topic="cars",
        share_version=1,
        first_ns=end_ns - BINS * 100_000_000,
        arrivals=[arrivals] * BINS,
        waiting=waiting,
        unfinished=[1.0] * BINS,
    )
    return HistoryReport(incarnation="1", topics=[history])


async def kept_in_step(brokers: list[FakeBroker]) -> None:
    while True:
        for broker in brokers:
            await broker.sync()
        await trio.sleep(0.05)


def rate_of(distributor: Distributor, broker: str) -> float:
    target = distributor.registry.topic("cars").leases.target
    return target[broker].rate / 1e6 if broker in target else 0.0


@pytest.fixture
async def placed(distributor: Distributor) -> Distributor:
    """1,000 msg/s on two brokers, r = 1,100."""
    a, b = await distributor.brokers("a", "b", mcap=2_000.0)
    await distributor.submit(spec(mode="fitted", placement="lb"))
    await settle(a, b)
    return distributor


async def test_shares_follow_the_traffic_without_an_adaptor_also_while_a_layout_is_searched(
    placed: Distributor, autojump_clock: MockClock
) -> None:
    placed.registry.being_fitted.add("cars")
    async with running(placed):
        await told(placed, {"a": 100.0, "b": 900.0}, 4)
        assert rate_of(placed, "b") > 900.0


async def test_the_loop_stands_back_while_somebody_else_proposes_and_goes_on_afterwards(
    placed: Distributor, autojump_clock: MockClock
) -> None:
    client = httpx.AsyncClient(transport=httpx.ASGITransport(make_app(placed.registry, placed.syncing)))
    async with client, running(placed):
        shares = {"a": ProposedShare(rate=1_000.0, burst=25.0), "b": ProposedShare(rate=100.0, burst=5.0)}
        proposal = ShareProposal(
            topic="cars", mode="fitted", version=placed.registry.topic("cars").version, shares=shares
        )
        body = {"proposals": [{**_plain(proposal)}]}
        answer = await client.put("http://distributor/v1/shares", json=body)
        assert answer.json()["results"][0]["taken"]
        for _ in range(3):
            await told(placed, {"a": 100.0, "b": 900.0}, 4)
            assert rate_of(placed, "a") == 1_000.0
            await client.put("http://distributor/v1/shares", json={"proposals": []})
        await told(placed, {"a": 100.0, "b": 900.0}, round(CLAIM_S) + 4)
        assert rate_of(placed, "b") > 900.0


def _plain(proposal: ShareProposal) -> dict[str, object]:
    shares = {name: {"rate": one.rate, "burst": one.burst} for name, one in proposal.shares.items()}
    return {"topic": proposal.topic, "mode": proposal.mode, "version": proposal.version, "shares": shares}


async def test_plain_publishers_at_a_broker_without_a_share_have_their_tokens_within_a_second(
    distributor: Distributor, autojump_clock: MockClock
) -> None:
    """The topic is on one broker of two; its 20 publishers of 10 msg/s are plain clients, at the other one."""
    a, b = await distributor.brokers("a", "b", mcap=1_300.0)
    await distributor.submit(spec(count=20, rate=10.0, mode="fitted"))
    await settle(a, b)
    topic = distributor.registry.topic("cars")
    (home,) = topic.placement.brokers
    other = "b" if home == "a" else "a"
    distributor.registry.being_fitted.add("cars")
    async with trio.open_nursery() as nursery, running(distributor):
        nursery.start_soon(kept_in_step, [a, b])
        await told(distributor, {other: 200.0}, 1, waits=True)
        await trio.sleep(0.5)
        assert rate_of(distributor, other) > 200.0
        nursery.cancel_scope.cancel()


async def test_what_silent_topics_have_reserved_bounds_no_share(
    distributor: Distributor, autojump_clock: MockClock
) -> None:
    a, b = await distributor.brokers("a", "b", mcap=1_300.0)
    await distributor.submit(spec("vans", count=240, rate=10.0, placement="lb"))  # 1,200 of 1,300 msg/s, each
    await distributor.submit(spec(count=20, rate=5.0, mode="fitted"))
    await settle(a, b)
    topic = distributor.registry.topic("cars")
    assert distributor.registry.max_rate(topic, "a") == pytest.approx(100.0, abs=60.0)
    released = 0
    for _ in range(10):  # vans is silent
        released += 10
        a.reports = [TopicReport(topic="cars", share_version=1, received=released, released=released)]
        await a.sync()
        await trio.sleep(1.0)
    assert distributor.registry.max_rate(topic, "a") == 1_300.0
