"""A broker that is drained: who gets its publishers and its tokens, and when; what is refused before anything
changes."""

import pytest
import trio
import trio.testing

from distributor.views import topic_view as views
from distributor.views.broker_view import broker_view
from srtm.control import TopicReport, UnassignedPublisher
from srtm.errors import Conflict, NotFound, Unavailable
from tests.support.distributor_in_process import Distributor, settle, spec

pytestmark = pytest.mark.usefixtures("no_threads")


def rates(*brokers):
    return [broker.share("cars")[0] for broker in brokers]


def waiting(topic, count):
    return TopicReport(topic=topic, share_version=1, received=1, backlog=count)


async def placed_on_two(distributor):
    """The topic is on a and b; c has room for the part of either."""
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    assert rates(a, b, c) == [550.0, 550.0, 0.0]
    return a, b, c


async def test_its_publishers_go_to_the_others_at_once_and_it_is_told(distributor, autojump_clock):
    a, b, c = await placed_on_two(distributor)
    stay = set(b.topics["cars"].publishers)
    await distributor.registry.drain("a", force=False)
    await settle(a, b, c)
    assert (a.draining, b.draining, c.draining) == (True, False, False)
    assert a.topics["cars"].publishers == []
    assert stay <= set(b.topics["cars"].publishers)  # nobody else moves
    assert len(b.topics["cars"].publishers) + len(c.topics["cars"].publishers) == 100


async def test_its_tokens_go_to_the_others_only_when_nothing_waits_for_them_any_more(distributor, autojump_clock):
    a, b, c = await placed_on_two(distributor)
    await distributor.registry.drain("a", force=False)
    a.reports = [waiting("cars", 5)]
    a.accepting = False
    await settle(a, b, c)
    assert 0 < rates(a)[0] < 550.0  # half of its part: the others need theirs already
    assert sum(rates(a, b, c)) == pytest.approx(1100.0)
    a.reports = [waiting("cars", 0)]
    await settle(a, b, c)
    assert rates(a) == [0.0]
    assert sum(rates(b, c)) == pytest.approx(1100.0)
    assert a.fulls == b.fulls == ["cars"]  # none was minted
    assert c.fulls == []


async def test_nobody_gets_its_tokens_before_it_has_acknowledged_that_they_are_gone(distributor, autojump_clock):
    a, b, c = await placed_on_two(distributor)
    await distributor.registry.drain("a", force=False)
    a.accepting = False
    for _ in range(3):
        await b.sync()
        await c.sync()
    assert sum(rates(b, c)) <= 550.0
    await settle(a, b, c)
    assert sum(rates(b, c)) == pytest.approx(1100.0)


async def test_while_it_still_takes_messages_it_keeps_tokens_for_them(distributor, autojump_clock):
    a, b, c = await placed_on_two(distributor)
    await distributor.registry.drain("a", force=False)
    await settle(a, b, c)
    assert rates(a)[0] > 0


async def test_where_the_burst_has_no_token_for_one_more_the_others_wait_for_its_tokens(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec(burst=1))
    await settle(a, b)
    (old, new) = (a, b) if a.topics["cars"].publishers else (b, a)
    await distributor.registry.drain(old.name, force=False)
    old.reports = [waiting("cars", 1)]
    old.accepting = False
    await settle(a, b)
    assert (rates(old), rates(new)) == ([1100.0], [0.0])
    old.reports = []
    await settle(a, b)
    assert (rates(old), rates(new)) == ([0.0], [1100.0])


async def test_while_no_token_is_to_spare_messages_that_wait_elsewhere_stop_no_sync(distributor, autojump_clock):
    a, b, c = await distributor.brokers("a", "b", "c", mcap=2000)
    await distributor.submit(spec(burst=1))
    await settle(a, b, c)
    (old,) = [one for one in (a, b, c) if one.topics["cars"].publishers]
    await distributor.registry.drain(old.name, force=False)
    others = [one for one in (a, b, c) if one is not old]
    old.reports, old.accepting = [waiting("cars", 1)], False
    for one in others:
        one.reports = [waiting("cars", 1)]
    await settle(a, b, c)  # every sync is answered
    assert sum(rates(a, b, c)) == 1100.0


async def test_what_the_others_cannot_carry_is_refused_before_anything_changes(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    before = distributor.registry.version, rates(a, b)
    with pytest.raises(Conflict, match="no room for: cars 400 msg/s; --force"):
        await distributor.registry.drain("a", force=False)
    await settle(a, b)
    assert (distributor.registry.version, rates(a, b)) == before
    assert not a.draining
    await distributor.registry.drain("a", force=True)
    await settle(a, b)
    assert a.draining
    assert len(b.topics["cars"].publishers) == 60
    assert distributor.registry.topic("cars").placement.state == "partial"


async def test_several_topics_must_find_room_together(distributor, autojump_clock):
    brokers = await distributor.brokers("a", "b", mcap=1500)
    for name in ("cars", "vans"):
        await distributor.submit(spec(name))
    await settle(*brokers)
    with pytest.raises(Conflict, match=r"no room for: (cars|vans) 500 msg/s;"):
        await distributor.registry.drain("a", force=False)


async def test_a_refusal_names_the_worst_five_of_many_topics_and_sums_the_rest_up(distributor, autojump_clock):
    brokers = await distributor.brokers("a", mcap=1000)
    for number in range(1, 9):
        await distributor.submit(spec(f"t{number}", count=number))
    await settle(*brokers)
    with pytest.raises(Conflict) as caught:
        await distributor.registry.drain("a", force=False)
    named = ", ".join(f"t{number} {number}0 msg/s" for number in (8, 7, 6, 5, 4))
    assert caught.value.rule == (
        f"the other brokers have no room for: {named}, 3 more topics 60 msg/s; --force drains it anyway"
    )


async def test_it_gets_nothing_new_while_it_drains(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.registry.drain("a", force=False)
    await distributor.submit(spec())
    await settle(a, b)
    assert rates(a, b) == [0.0, 1100.0]
    for publisher_id in ("stranger-1", "stranger-2", "stranger-3"):
        assert views.assignment(distributor.registry.topic("cars"), publisher_id, distributor.registry).broker == "b"


async def test_a_publisher_of_it_is_told_to_move_once_the_other_has_a_share(distributor, autojump_clock):
    a, b, c = await placed_on_two(distributor)
    publisher = a.topics["cars"].publishers[0]
    await distributor.registry.drain("a", force=False)
    await settle(a, b, c)
    a.strangers = [UnassignedPublisher(topic="cars", publisher_id=publisher)]
    (move,) = (await a.sync()).moves
    assert move.address in (b.address, c.address)


async def test_the_last_broker_can_be_drained_by_force_and_nobody_is_sent_to_it(distributor, autojump_clock):
    (a,) = await distributor.brokers("a", mcap=2000)
    await distributor.submit(spec())
    await settle(a)
    with pytest.raises(Conflict):
        await distributor.registry.drain("a", force=False)
    await distributor.registry.drain("a", force=True)
    topic = distributor.registry.topic("cars")
    assert topic.placement.state == "waiting"
    with pytest.raises(Unavailable):
        views.assignment(topic, "p1", distributor.registry)


async def test_one_that_is_unknown_or_silent_is_refused(distributor, autojump_clock):
    with pytest.raises(NotFound):
        await distributor.registry.drain("nobody", force=False)
    await distributor.brokers("a")
    await trio.sleep(60)
    with pytest.raises(Conflict, match="not heard from: start it, or `srtm brokers dead "):
        await distributor.registry.drain("a", force=True)


async def test_it_is_shown_and_a_second_time_changes_nothing(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.registry.drain("a", force=False)
    version = distributor.registry.version
    await distributor.registry.drain("a", force=False)
    assert distributor.registry.version == version
    shown = [broker_view(name, distributor.registry, distributor.syncing) for name in ("a", "b")]
    assert [one.draining for one in shown] == [True, False]
    assert {one.name for one in (a, b)} == {"a", "b"}


async def test_an_answer_that_is_held_back_comes_at_once(distributor, autojump_clock):
    a, _ = await distributor.brokers("a", "b", mcap=2000)
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(a.sync, 20.0)
        await trio.testing.wait_all_tasks_blocked()
        await distributor.registry.drain("a", force=False)
    assert (a.draining, trio.current_time()) == (True, started_s)


async def test_a_new_incarnation_is_in_service_again(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.registry.drain("a", force=False)
    await settle(a, b)
    a.restart()
    await settle(a, b)
    assert not a.draining
    assert "a" in distributor.registry.takes_more()


async def test_it_goes_on_after_a_restart_of_the_distributor(tmp_path, autojump_clock, monkeypatch):
    first = await Distributor.open(tmp_path / "store.sqlite3")
    a, b, c = await placed_on_two(first)

    async def fail(*_arguments, **_options):
        raise Unavailable("the disk is full")

    monkeypatch.setattr(first.registry.maintenance, "move_publishers_off", fail)
    with pytest.raises(Unavailable):
        await first.registry.drain("a", force=False)
    await first.aclose()
    second = await Distributor.open(tmp_path / "store.sqlite3")
    for broker in (a, b, c):
        broker.syncing = second.syncing
    await settle(a, b, c)
    assert a.draining
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.registry.run)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    await settle(a, b, c)
    assert a.topics["cars"].publishers == []
    await second.aclose()


def word(distributor, name):
    return broker_view(name, distributor.registry, distributor.syncing).state


async def test_once_it_has_ended_it_is_shown_as_drained_and_its_drain_can_be_taken_back(distributor, autojump_clock):
    a, b, c = await placed_on_two(distributor)
    await distributor.registry.drain("a", force=False)
    assert (word(distributor, "a"), word(distributor, "b")) == ("draining", "live")
    with pytest.raises(Conflict, match="still drains"):
        await distributor.registry.undrain("a")
    await distributor.registry.declare_dead("a", "1")
    assert word(distributor, "a") == "drained"
    await distributor.registry.drain("a", force=False)  # it has: nothing is to be done
    assert word(distributor, "a") == "drained"
    await distributor.registry.undrain("a")
    await distributor.registry.undrain("a")  # a second time changes nothing
    assert (word(distributor, "a"), distributor.registry.draining) == ("dead", set())
    a.restart()
    a.accepting = True
    await settle(a, b, c)
    assert (word(distributor, "a"), a.draining) == ("live", False)


async def test_the_drain_of_a_broker_that_is_unknown_cannot_be_taken_back(distributor, autojump_clock):
    with pytest.raises(NotFound):
        await distributor.registry.undrain("nowhere")
