"""Timed leases: what a broker had that was not heard from for longer goes to others, and never before it has ended."""

import pytest
import trio

from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.topics.lease import MARGIN_MS
from tests.support.distributor_in_process import Distributor, settle, spec, total

pytestmark = pytest.mark.usefixtures("no_threads")

LEASE_S = 15.0
MARGIN_S = MARGIN_MS / 1000
TIMED = spec(lease="15s")


def told_leases(*brokers):
    return [broker.topics["cars"].share.lease_s for broker in brokers]


async def test_shares_say_how_long_they_last_and_a_changed_length_is_told_under_a_new_version(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    kept = a.topics["cars"].share
    await distributor.submit(TIMED)
    await settle(a, b)
    timed = a.topics["cars"].share
    assert (kept.lease_s, told_leases(a, b)) == (None, [LEASE_S, LEASE_S])
    assert (timed.rate, timed.burst, timed.version > kept.version) == (kept.rate, kept.burst, True)


async def test_the_tokens_of_a_silent_broker_go_to_others_after_its_lease_and_the_margin(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(TIMED)
    await settle(a, b, c)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        nursery.start_soon(c.run)
        await trio.sleep(LEASE_S + MARGIN_S - 0.1)
        assert total(b, c) == (550.0, 15.0)
        await trio.sleep(2.5)
        assert total(b, c) == (1100.0, 30.0)
        nursery.start_soon(a.run)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert a.share() == (0.0, 0.0)
    assert a.topics["cars"].publishers == []
    assert "longer than its lease of 15s" in distributor.registry.decisions["cars"][-1].lines[0]


async def test_under_the_rule_keep_silence_frees_nothing(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    await distributor.submit(TIMED)
    await settle(b, c)  # a may still have its share for good
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        nursery.start_soon(c.run)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert total(b, c) == (550.0, 15.0)


async def test_a_shorter_lease_counts_from_its_acknowledgement_on(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec(lease="60s"))
    await settle(a, b, c)
    await distributor.submit(spec(lease="5s"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        nursery.start_soon(c.run)
        await trio.sleep(50)
        assert total(b, c) == (550.0, 15.0)
        await trio.sleep(15)
        nursery.cancel_scope.cancel()
    assert total(b, c) == (1100.0, 30.0)


async def test_a_distributor_that_hears_nobody_moves_nothing(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(TIMED)
    await settle(a, b)
    shares = a.share(), b.share()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        await trio.sleep(100)
        nursery.start_soon(b.run)
        await trio.sleep(MARGIN_S - 0.5)  # the others are on their way back, too
        nursery.start_soon(a.run)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert (a.share(), b.share()) == shares


async def test_a_new_leader_waits_for_a_lease_that_may_have_been_renewed_just_before(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(TIMED)
    await settle(a, b, c)
    await trio.sleep(100)
    registry = await Registry.load(distributor.store, distributor.registry.config)
    second = Distributor(distributor.store, registry, SyncService(registry))
    b.syncing = c.syncing = second.syncing
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.run)
        nursery.start_soon(b.run)
        nursery.start_soon(c.run)
        await trio.sleep(LEASE_S + MARGIN_S - 0.1)
        assert total(b, c) == (550.0, 15.0)
        await trio.sleep(2.5)
        nursery.cancel_scope.cancel()
    assert total(b, c) == (1100.0, 30.0)


async def test_a_broker_grows_by_the_rate_that_is_free_while_a_silent_one_holds_more_burst_than_there_is_now(
    distributor, autojump_clock
):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.submit(spec(rate=12.0, burst=20))
    await trio.sleep(60)
    await a.settle()
    assert (a.share(), b.share()) == ((660.0, 10.0), (550.0, 15.0))


async def test_a_removed_topic_forgets_what_a_silent_broker_had(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(TIMED)
    await settle(a, b)
    await distributor.registry.remove("cars", purge=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        await trio.sleep(LEASE_S + MARGIN_S + 2)
        nursery.cancel_scope.cancel()
    assert distributor.registry.topics["cars"].leases.holdings == {}
