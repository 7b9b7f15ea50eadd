"""Brokers that die, fall silent, come back, or are not who they were: who keeps publishers and tokens."""

from functools import partial

import pytest
import trio
import trio.testing

from distributor.placement import planner
from distributor.views import topic_view as views
from distributor.views.lookup_registrations import LookupRegistrations
from distributor.views.nsqlookupd import Lookups
from srtm.control import TopicReport, UnassignedPublisher
from srtm.errors import Conflict, NotFound
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total


def _lookups(distributor):
    return Lookups(distributor.registry, distributor.syncing, LookupRegistrations())


pytestmark = pytest.mark.usefixtures("no_threads")


async def test_a_crashed_broker_gets_its_share_back_empty_and_keeps_its_publishers(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    publishers, share = a.topics["cars"].publishers, a.share()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        await distributor.registry.declare_dead("a", "1")
        assert not distributor.registry.is_alive("a")
        await trio.sleep(3)
        a.restart()
        nursery.start_soon(a.run)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert (a.topics["cars"].publishers, a.share()) == (publishers, share)
    assert a.fulls == ["cars"]  # of the first incarnation
    assert not a.topics["cars"].share.full


async def test_the_tokens_of_a_dead_broker_go_to_others_at_once_and_its_publishers_keep_their_places(distributor):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    places = distributor.registry.topic("cars").placement
    await distributor.registry.declare_dead("a", "1")
    await settle(b, c)
    assert b.share() == (1100.0, 30.0)
    topic = distributor.registry.topic("cars")
    assert topic.placement is places
    assert "a died" in distributor.registry.share_changes["cars"][-1].reason


async def test_one_that_comes_back_gets_a_share_once_the_others_have_shrunk_and_empty(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.registry.declare_dead("a", "1")
    await settle(b)
    assert b.share() == (1100.0, 30.0)
    a.restart()
    await a.settle()
    assert a.share() == (0.0, 0.0)
    assert b.share() == (1100.0, 30.0)
    await settle(b, a)
    assert a.share() == b.share() == (550.0, 15.0)
    assert a.fulls == ["cars"]  # of the first incarnation


async def test_nothing_that_happens_in_the_grace_gives_a_dead_broker_a_share(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.registry.declare_dead("a", "1")
    await distributor.submit(spec(rate=11.0))
    await settle(b)
    assert distributor.registry.topic("cars").leases.target.keys() == {"b"}
    assert b.share() == (1210.0, 30.0)


async def test_of_a_topic_that_only_the_dead_broker_had_the_tokens_wait_for_it_without_a_holder(distributor):
    (a,) = await distributor.brokers("a")
    await distributor.submit(spec())
    await settle(a)
    whole = a.share()
    await distributor.registry.declare_dead("a", "1")
    leases = distributor.registry.topic("cars").leases
    assert (leases.target, leases.holdings) == ({}, {})
    a.restart()
    await a.settle()
    assert a.share() == whole


async def test_a_broker_that_was_proven_dead_is_refused_until_it_is_started_again(distributor):
    """Its word may be late: it must not undo the proof."""
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.registry.declare_dead("a", "1")
    with pytest.raises(Conflict, match="proven dead"):
        await a.sync()
    await settle(b)
    assert b.share() == (1100.0, 30.0)
    assert not distributor.registry.is_alive("a")


async def test_under_gdrl_what_a_dead_broker_had_is_dealt_out_as_soon_as_the_others_were_asked(distributor):
    a, b, c = await distributor.brokers("a", "b", "c", mcap=400)
    await distributor.submit(spec(mode="gdrl"))
    await settle(a, b, c)
    await settle(a, b, c)
    assert distributor.registry.topic("cars").leases.pool
    await distributor.registry.declare_dead("a", "1")
    for _ in range(3):  # the recall, what each has, what each is to have
        await settle(b, c)
    assert total(b, c) == (1100.0, 30.0)


async def test_after_the_grace_the_publishers_of_a_dead_broker_go_to_others(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    orphans = set(a.topics["cars"].publishers)
    stayed = set(b.topics["cars"].publishers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        nursery.start_soon(c.run)
        await distributor.registry.declare_dead("a", "1")
        await trio.sleep(15)
        nursery.cancel_scope.cancel()
    assert stayed <= set(b.topics["cars"].publishers)
    assert orphans <= set(b.topics["cars"].publishers) | set(c.topics["cars"].publishers)
    assert total(b, c) == (1100.0, 30.0)


async def test_a_silent_broker_keeps_its_share_and_publishers(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        nursery.start_soon(c.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert not distributor.registry.is_alive("a")
    assert total(b, c) == (550.0, 15.0)
    assert distributor.registry.topic("cars").placement.assigned["a"] == 500.0


async def test_a_broker_that_was_silent_for_long_is_not_looked_up(distributor, autojump_clock):
    await distributor.brokers("a", "b")
    await trio.sleep(299)
    await distributor.brokers("b")
    await trio.sleep(2)
    seen = _lookups(distributor)
    assert [node.hostname for node in seen.nodes(seen.holders(), 0.0)] == ["b"]


async def while_it_is_evicted(a, monkeypatch, evict):
    """The new incarnation syncs between the plan for its publishers and the commit of that plan."""
    place_rest = planner.place_rest
    planned = trio.Event()

    async def slow(work, *arguments, **_):
        result = work(*arguments)
        if getattr(work, "func", None) is place_rest:
            planned.set()
            await trio.testing.wait_all_tasks_blocked()
        return result

    async def come_back():
        await planned.wait()
        await a.sync()

    monkeypatch.setattr(trio.to_thread, "run_sync", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        nursery.start_soon(evict)


async def dead_one_of_three(distributor):
    brokers = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(*brokers)
    await distributor.registry.declare_dead("a", "1")
    brokers[0].restart()
    return brokers


async def test_a_broker_that_comes_back_while_it_is_being_evicted_keeps_its_tokens(distributor, monkeypatch):
    a, b, c = await dead_one_of_three(distributor)
    await while_it_is_evicted(a, monkeypatch, partial(distributor.registry.maintenance.evict, "a"))
    await settle(b, c)
    await settle(a, b, c)
    assert a.share() == (550.0, 15.0)
    assert total(a, b, c) == (1100.0, 30.0)


async def test_a_broker_that_comes_back_while_it_is_being_forgotten_is_not_forgotten(distributor, monkeypatch):
    a, b, c = await dead_one_of_three(distributor)

    async def forget():
        with pytest.raises(Conflict, match="has come back, as incarnation 2"):
            await distributor.registry.forget("a")

    await while_it_is_evicted(a, monkeypatch, forget)
    assert "a" in distributor.registry.brokers
    await settle(b, c)
    await settle(a, b, c)
    assert a.share() == (550.0, 15.0)
    assert total(a, b, c) == (1100.0, 30.0)


async def test_an_empty_broker_that_gets_a_topic_while_it_is_being_forgotten_is_not_forgotten(distributor):
    await distributor.brokers("a")
    registry = distributor.registry

    async def forget():
        with pytest.raises(Conflict, match="has publishers or tokens"):
            await registry.forget("a")

    async with trio.open_nursery() as nursery, registry.state.placing:
        nursery.start_soon(forget)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(distributor.submit, spec(count=10)))
        await trio.testing.wait_all_tasks_blocked()
    assert "a" in registry.brokers


async def test_proof_of_death_of_another_incarnation_is_refused(distributor):
    await distributor.brokers("a")
    with pytest.raises(Conflict, match="known as incarnation 1"):
        await distributor.registry.declare_dead("a", "0")
    with pytest.raises(NotFound):
        await distributor.registry.declare_dead("z", "1")


async def test_an_older_incarnation_is_refused(distributor):
    (a,) = await distributor.brokers("a")
    a.restart()
    await a.settle()
    a.incarnation = "1"
    with pytest.raises(Conflict, match="incarnation 2 of broker a came later"):
        await a.sync()


async def test_two_processes_that_drew_one_incarnation_are_two(distributor):
    (a,) = await distributor.brokers("a")
    a.claims = ("a copy",)
    with pytest.raises(Conflict, match="on a copy of its data directory: start it again"):
        await a.sync()


async def test_a_broker_comes_back_once_a_copy_that_took_its_place_is_proven_dead(distributor):
    (a,) = await distributor.brokers("a")
    await distributor.registry.declare_dead("a", "1")
    copy = FakeBroker("a", distributor.syncing, incarnation="3", claims=("a copy",))
    a.incarnation = "2"  # before the copy was made
    await copy.settle()
    with pytest.raises(Conflict, match=r"is not proven dead.*say so by `srtm brokers dead a`"):
        await a.sync()
    await distributor.registry.declare_dead("a", "3")
    await a.settle()
    assert distributor.registry.broker("a").incarnation == "2"


@pytest.mark.parametrize("was_dead", [False, True])
async def test_a_process_that_began_later_takes_its_place_though_the_wall_clock_was_set_back(distributor, was_dead):
    """Its data directory may have been put back too: else its incarnation would be above the last one."""
    (a,) = await distributor.brokers("a")
    a.restart()
    a.claims = ("its directory", "since 100")
    await a.settle()
    if was_dead:
        await distributor.registry.declare_dead("a", "2")
    a.incarnation, a.claims = "1", ("its directory", "since 99")
    with pytest.raises(Conflict, match="incarnation 2 of broker a came later"):
        await a.sync()
    a.claims = ("its directory", "since 101")
    await a.settle()
    assert distributor.registry.broker("a").incarnation == "1"


async def test_a_channel_that_only_a_dead_broker_had_does_not_come_back(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    a.reports = b.reports = [TopicReport(topic="cars", share_version=1, channels=["archive"])]
    await settle(a, b)
    await distributor.registry.declare_dead("a", "1")
    b.reports = [TopicReport(topic="cars", share_version=1, channels=["audit"])]  # archive was deleted there
    await settle(b)
    assert b.topics["cars"].channels == ["audit"]


async def test_a_broker_that_dies_does_not_bring_a_removed_topic_back(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.registry.remove("cars", purge=False)
    await distributor.registry.declare_dead("a", "1")
    await distributor.registry.forget("a")
    assert distributor.registry.managed() == []
    assert distributor.registry.topics["cars"].leases.holdings.keys() == {"b"}


async def test_a_broker_that_is_empty_or_dead_can_be_forgotten_and_no_other(distributor):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    with pytest.raises(Conflict, match="not proven dead"):
        await distributor.registry.forget("a")
    await distributor.registry.forget("c")
    await distributor.registry.declare_dead("a", "1")
    await distributor.registry.forget("a")
    assert distributor.registry.brokers.keys() == {"b"}
    await settle(b)
    assert b.share() == (660.0, 18.0)  # of those who have a place
    assert distributor.registry.topic("cars").placement.state == "partial"


async def test_a_batch_that_no_longer_fits_after_a_death_is_warned_about_and_its_publisher_placed(distributor):
    # 12 of 24 tokens on each of two large brokers; one dies, and the two small ones that take over get fewer.
    a, b = await distributor.brokers("a", "b", mcap=350)
    c, d = await distributor.brokers("c", "d", mcap=200)
    blocks = [{"count": 66, "rate": 10, "batch": 12}]
    await distributor.submit(spec(rate=10.0, count=66, burst=24, on_excess="reject", publishers=blocks))
    await settle(a, b, c, d)
    assert (a.share(), b.share()) == ((363.0, 12.0), (363.0, 12.0))
    await distributor.registry.declare_dead("b", "1")
    await distributor.registry.forget("b")
    await settle(a, c, d)
    topic = distributor.registry.topic("cars")
    assert topic.placement.state == "placed"
    assert "the burst of its share on c" in views.reason(topic.reasons)
    assert total(a, c, d) == (726.0, 24.0)


async def test_another_broker_of_the_same_name_is_refused_until_the_first_is_proven_dead(distributor):
    """Only the lock of one data directory, or one port, proves that an earlier incarnation has ended."""
    a, b = FakeBroker("a", distributor.syncing, incarnation="2-here"), FakeBroker("b", distributor.syncing)
    await settle(a, b)
    await distributor.submit(spec())
    await settle(a, b)
    double = FakeBroker("a", distributor.syncing, incarnation="3-there", claims=("another",), host="10.0.0.9")
    with pytest.raises(Conflict, match="another broker named a"):
        await double.sync()
    assert (await a.sync()).unchanged
    assert distributor.registry.brokers["a"].incarnation == "2-here"
    await distributor.registry.declare_dead("a", "2-here")
    double.incarnation = "1-there"  # its host's clock is behind
    await settle(double, b)
    await settle(double, b)  # b has shrunk
    assert total(double, b) == (1100.0, 30.0)
    with pytest.raises(Conflict, match="another broker named a"):  # the word was false: the first is still there
        await a.sync()


async def test_a_broker_that_comes_back_on_its_port_without_its_data_directory_replaces_the_first(distributor):
    first = FakeBroker("a", distributor.syncing, incarnation="2-here", claims=("its directory", "its port"))
    await first.settle()
    again = FakeBroker("a", distributor.syncing, incarnation="3-there", claims=("another", "its port"))
    await again.settle()
    with pytest.raises(Conflict, match="came later"):
        await first.sync()


async def copied(distributor: Distributor, **of_the_copy: object) -> tuple[FakeBroker, FakeBroker, FakeBroker]:
    """Brokers a and b, which have all tokens, and one of a's name on a copy of its data directory."""
    a, b = FakeBroker("a", distributor.syncing, incarnation="2-here"), FakeBroker("b", distributor.syncing)
    await settle(a, b)
    await distributor.submit(spec())
    await settle(a, b)
    return a, b, FakeBroker("a", distributor.syncing, incarnation="3-here", claims=("a copy",), **of_the_copy)


@pytest.mark.parametrize("claims", [("a copy",), (), None], ids=["of another directory", "unknown", "not told"])
async def test_a_copy_of_a_data_directory_proves_no_death(distributor, autojump_clock, claims):
    """The first is cut off from the distributor, and lets messages go by the share that it keeps."""
    a, b, copy = await copied(distributor)
    copy.claims = claims
    await trio.sleep(300)
    await b.settle()
    with pytest.raises(Conflict, match="copy of its data directory"):
        await copy.sync()
    await settle(b)
    assert total(a, b) == (1100.0, 30.0)
    assert (await a.sync()).unchanged  # it was never in doubt


async def test_a_copy_at_the_address_of_the_first_proves_no_death(distributor):
    a, _b, copy = await copied(distributor, host="127.0.0.1")
    with pytest.raises(Conflict, match="not proven dead"):
        await copy.sync()
    assert (await a.sync()).unchanged


async def test_a_copy_takes_over_once_somebody_says_that_the_first_has_ended(distributor):
    a, b, copy = await copied(distributor)
    await distributor.registry.declare_dead("a", "2-here")
    await settle(copy, b)
    await settle(copy, b)
    assert total(copy, b) == (1100.0, 30.0)
    with pytest.raises(Conflict, match="not proven dead"):
        await a.sync()


async def test_a_copy_takes_over_once_the_lease_of_the_first_is_over(distributor, autojump_clock):
    a, b = FakeBroker("a", distributor.syncing, incarnation="2-here"), FakeBroker("b", distributor.syncing)
    await settle(a, b)
    await distributor.submit(spec(lease="15s"))
    await settle(a, b)
    copy = FakeBroker("a", distributor.syncing, incarnation="3-here", claims=("a copy",))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        nursery.start_soon(b.run)
        with pytest.raises(Conflict, match="not proven dead"):
            await copy.sync()
        await trio.sleep(60)
        await copy.settle()
        nursery.cancel_scope.cancel()
    assert distributor.registry.brokers["a"].incarnation == "3-here"


async def test_what_a_broker_holds_is_known_to_the_next_leader(distributor, tmp_path):
    _a, _b, copy = await copied(distributor)
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    copy.syncing = again.syncing
    with pytest.raises(Conflict, match="not proven dead"):
        await copy.sync()
    copy.claims = ("its directory",)
    await copy.settle()
    await again.aclose()


async def test_a_broker_without_a_part_in_anything_is_replaced_once_it_is_silent(distributor, autojump_clock):
    await FakeBroker("a", distributor.syncing, incarnation="2-here").settle()
    double = FakeBroker("a", distributor.syncing, incarnation="3-there", claims=("another",), host="10.0.0.9")
    with pytest.raises(Conflict, match="another broker named a"):
        await double.sync()
    await trio.sleep(60)
    await double.settle()
    assert distributor.registry.brokers["a"].incarnation == "3-there"


async def test_the_new_address_of_a_broker_that_came_back_elsewhere_is_told_to_publishers_and_subscribers(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    a.restart()
    a.host = "10.0.0.9"
    await settle(a, b)
    topic = distributor.registry.topic("cars")
    publisher = topic.placement.ids_of["a"][0]
    assert views.assignment(topic, publisher, distributor.registry).address == a.address
    found = _lookups(distributor).lookup("cars", 0.0)
    assert {one.broadcast_address for one in found.producers} == {"10.0.0.9", "127.0.0.1"}
    b.strangers = [UnassignedPublisher(topic="cars", publisher_id=publisher)]
    assert [move.address for move in (await b.sync()).moves] == [a.address]


async def test_a_fitting_cannot_place_a_topic_on_a_broker_that_has_died_meanwhile(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec(count=40))
    await settle(a, b)
    topic = distributor.registry.topic("cars")
    (home,) = topic.placement.brokers
    (idle,) = {"a", "b"} - {home}
    await distributor.registry.declare_dead(idle, "1")
    elsewhere = topic.placement.moved(dict.fromkeys(topic.spec.publishers.ids, idle))
    with pytest.raises(Conflict, match=idle):
        await distributor.registry.arrange("cars", topic.assignment_version, elsewhere, "fitting")
    assert distributor.registry.topic("cars") is topic


async def test_a_death_while_the_broker_is_still_being_evicted_from_its_last_one_is_not_forgotten(
    distributor, autojump_clock, monkeypatch
):
    a, b = await distributor.brokers("a", "b", mcap=2000.0)
    await distributor.submit(spec())
    await settle(a, b)
    registry = distributor.registry
    (home,) = registry.topic("cars").placement.brokers
    (dying, other) = (a, b) if home == "a" else (b, a)
    evict, evicted = registry.maintenance.evict, []

    async def evict_while_it_comes_back(name: str) -> None:
        evicted.append(name)
        await evict(name)
        if len(evicted) == 1:
            dying.restart()
            await dying.sync()
            await registry.declare_dead(name, dying.incarnation)

    monkeypatch.setattr(registry.maintenance, "evict", evict_while_it_comes_back)
    await registry.declare_dead(home, dying.incarnation)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.run)
        nursery.start_soon(other.run)
        await trio.sleep(3 * registry.config.rejoin_grace_s + 10)
        nursery.cancel_scope.cancel()
    assert evicted == [home, home]
