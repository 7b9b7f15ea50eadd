"""Right after a start or a takeover no broker has been heard: what would be planned then waits until it is known who
lives. Time is simulated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from distributor.config import DistributorConfig
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec

pytestmark = pytest.mark.usefixtures("no_threads")
LIVENESS_S = DistributorConfig().liveness_s


@asynccontextmanager
async def restarted(path: Path, *mcaps: float) -> AsyncIterator[tuple[Distributor, list[FakeBroker]]]:
    """A distributor after a restart, and its brokers, which have not yet been heard by it: "cars" is placed on them."""
    first = await Distributor.open(path / "s.sqlite3")
    brokers = [(await first.brokers(name, mcap=mcap))[0] for name, mcap in zip("abc", mcaps, strict=False)]
    await first.submit(spec())
    await settle(*brokers)
    await first.aclose()
    second = await Distributor.open(path / "s.sqlite3")
    for broker in brokers:
        broker.syncing = second.syncing
    try:
        yield second, brokers
    finally:
        await second.aclose()


async def test_a_changed_topic_is_placed_as_soon_as_the_last_living_broker_was_heard(tmp_path, autojump_clock):
    async with restarted(tmp_path, 1200, 1200) as (distributor, (a, b)), trio.open_nursery() as nursery:
        started_s = trio.current_time()
        nursery.start_soon(distributor.submit, spec(count=110))
        await trio.sleep(1)
        await a.sync()
        await trio.testing.wait_all_tasks_blocked()
        assert len(distributor.registry.topic("cars").spec.publishers) == 100  # b may be the one that has room
        await b.sync()
        await trio.testing.wait_all_tasks_blocked()
        assert distributor.registry.topic("cars").placement.state == "placed"
        assert trio.current_time() - started_s < LIVENESS_S


async def test_one_that_stays_silent_is_waited_for_no_longer_than_it_would_count_as_heard(tmp_path, autojump_clock):
    async with restarted(tmp_path, 1200, 1200) as (distributor, (_, b)), trio.open_nursery() as nursery:
        started_s = trio.current_time()
        nursery.start_soon(b.run)
        await distributor.submit(spec("vans", count=10))
        assert trio.current_time() - started_s == pytest.approx(LIVENESS_S)
        assert distributor.registry.topic("vans").placement.brokers == ("b",)
        nursery.cancel_scope.cancel()


async def test_one_that_is_proven_dead_is_not_waited_for(tmp_path, autojump_clock):
    async with restarted(tmp_path, 1200, 1200) as (distributor, (a, b)):
        started_s = trio.current_time()
        await distributor.registry.declare_dead("a", a.incarnation)
        await b.sync()
        await distributor.submit(spec("vans", count=10))
        assert trio.current_time() == started_s


async def test_the_first_start_of_all_waits_for_nobody(distributor, autojump_clock):
    started_s = trio.current_time()
    await distributor.submit(spec())
    assert (trio.current_time(), distributor.registry.topic("cars").placement.state) == (started_s, "waiting")


async def test_a_drain_that_goes_on_takes_nobody_off_before_the_others_were_heard(tmp_path, autojump_clock):
    async with restarted(tmp_path, 1200, 1200) as (distributor, (a, b)), trio.open_nursery() as nursery:
        distributor.registry.state.draining = {"a"}  # as loaded, where moving its publishers had failed
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(a.run)
        await trio.sleep(LIVENESS_S / 2)
        assert distributor.registry.topic("cars").placement.brokers == ("a",)
        nursery.start_soon(b.run)
        await trio.sleep(2)
        assert distributor.registry.topic("cars").placement.brokers == ("b",)
        assert distributor.registry.topic("cars").placement.state == "placed"
        nursery.cancel_scope.cancel()
