"""What brokers acknowledge is stored a little later than it counts: losing it costs a sync, and no token."""

import pytest
import trio

from distributor.placement.proposals import shares_version
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.control import ProposedShare, ShareProposal
from tests.support.distributor_in_process import settle, spec, total

pytestmark = pytest.mark.usefixtures("no_threads")


async def loaded(distributor):
    return await Registry.load(distributor.store, distributor.registry.config)


async def test_an_acknowledgement_that_changes_nothing_for_others_counts_at_once_and_is_stored_in_its_turn(
    distributor, autojump_clock
):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    version = distributor.registry.version
    await settle(a, b)
    assert distributor.registry.version == version
    assert all(held.is_acknowledged for held in distributor.registry.topics["cars"].leases.holdings.values())
    assert not any(held.is_acknowledged for held in (await loaded(distributor)).topics["cars"].leases.holdings.values())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        await trio.sleep(1.5)
        nursery.cancel_scope.cancel()
    assert (await loaded(distributor)).topics["cars"].leases == distributor.registry.topics["cars"].leases


async def test_the_next_commit_of_the_topic_stores_it_too_whatever_else_that_changes(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.registry.note("cars", "nothing but a line in the log")
    assert (await loaded(distributor)).topics["cars"].leases == distributor.registry.topics["cars"].leases


async def test_what_may_go_to_others_by_it_is_stored_before_they_are_told(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec(mode="fitted"))
    await settle(a, b)
    shares = {"a": ProposedShare(rate=600.0, burst=25.0), "b": ProposedShare(rate=500.0, burst=5.0)}
    topic = distributor.registry.topic("cars")
    proposal = ShareProposal(topic="cars", mode="fitted", version=shares_version(topic), shares=shares)
    assert (await distributor.registry.adapt([proposal])).results[0].taken
    await b.sync()  # is told to shrink
    await b.sync()  # has
    stored = (await loaded(distributor)).topics["cars"].leases
    assert (stored.holdings["a"].share, stored.outstanding()) == (stored.target["a"], stored.envelope)
    assert stored.holdings["b"].is_acknowledged


async def test_a_leader_that_never_saw_an_acknowledgement_hears_it_with_the_next_sync(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    shares = a.share(), b.share()
    registry = await loaded(distributor)
    a.syncing = b.syncing = SyncService(registry)
    await settle(a, b)
    assert all(held.is_acknowledged for held in registry.topics["cars"].leases.holdings.values())
    assert (a.share(), b.share()) == shares
    assert a.fulls + b.fulls == ["cars", "cars"]
    await registry.submit(spec(rate=9.0))
    await settle(a, b)
    assert total(a, b) == (990.0, 30.0)
