"""Publishers whose place changes while they publish: who has tokens meanwhile, when they are told, and what becomes of
those that do not move."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from distributor.storage import cluster_rows as records
from srtm.control import ProposedShare, ShareProposal, TopicReport, UnassignedPublisher
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total

pytestmark = pytest.mark.usefixtures("no_threads")

ENVELOPE = (1100.0, 30.0)


async def moved_half(distributor: Distributor) -> tuple[FakeBroker, FakeBroker, set[str]]:
    """Everybody was on a; half of them, who are returned, belong on b from now on."""
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec(placement="conc"))
    await settle(a, b)
    assert (a.share(), b.share()) == (ENVELOPE, (0.0, 0.0))
    everybody = set(a.topics["cars"].publishers)
    await distributor.submit(spec(placement="lb"))
    await settle(a, b)
    moved = everybody - set(a.topics["cars"].publishers)
    assert moved == set(b.topics["cars"].publishers)
    return a, b, moved


def report(undeclared: int = 0, backlog: int = 0, consumed: tuple[str, ...] = ()) -> list[TopicReport]:
    one = TopicReport(
        topic="cars", share_version=1, received=1, undeclared=undeclared, backlog=backlog, consumed=list(consumed)
    )
    return [one]


async def pass_windows(*brokers: FakeBroker, count: int = 2) -> None:
    for _ in range(count):
        await trio.sleep(2.1)
        await settle(*brokers)


async def test_while_they_are_on_their_way_they_count_at_both_brokers_as_far_as_the_slack_goes(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    a, b, moved = await moved_half(distributor)
    assert len(moved) == 50
    assert total(a, b) == ENVELOPE
    assert b.share()[0] >= 500.0  # what they send: nobody is short
    assert a.share()[0] == pytest.approx(1100 * 575 / 1075)  # three quarters of the slack of 100 for those still there
    a.reports, b.reports = report(), report()
    await pass_windows(a, b)
    assert a.share() == b.share() == (550.0, 15.0)  # they have gone
    assert total(a, b) == ENVELOPE
    assert distributor.registry.topic("cars").misplaced == {}


async def test_a_broker_that_all_have_left_keeps_tokens_until_nothing_waits_there_any_more(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    a, b, _ = await moved_half(distributor)
    a.reports, b.reports = report(), report()
    await pass_windows(a, b)
    await distributor.submit(spec(placement="conc"))
    await settle(a, b)
    left = a if not a.topics["cars"].publishers else b
    assert left.share()[0] > 0
    left.reports = report(backlog=5)
    await pass_windows(a, b, count=4)
    assert left.share()[0] > 0
    left.reports = report(backlog=0)
    await pass_windows(a, b)
    assert left.share() == (0.0, 0.0)
    assert total(a, b) == ENVELOPE
    assert distributor.registry.topic("cars").extra_brokers == ()


async def test_publishers_that_do_not_move_are_accounted_where_they_are_and_not_where_they_belong(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    """As plain NSQ clients, which cannot be told."""
    a, b, moved = await moved_half(distributor)
    a.strangers = [UnassignedPublisher(topic="cars", publisher_id=one) for one in sorted(moved)[:30]]
    counted = 0
    a.reports, b.reports = report(), report()
    await settle(a, b)
    for _ in range(6):  # for five seconds they may be on the way
        counted += 630
        a.reports = report(undeclared=counted)  # 300 msg/s in 2.1 s
        await pass_windows(a, b, count=1)
    assert a.share()[0] == pytest.approx(1.1 * (500 + 300), rel=0.01)
    assert b.share()[0] == pytest.approx(1.1 * (500 - 300), rel=0.01)
    assert total(a, b) == ENVELOPE
    await pass_windows(a, b)  # not one more is counted: they are gone
    assert a.share() == b.share() == (550.0, 15.0)


@pytest.mark.parametrize("mode", ["static", "fitted"])
async def test_a_pin_changes_where_publishers_belong_and_no_share(
    distributor: Distributor, autojump_clock: trio.testing.MockClock, mode: str
) -> None:
    registry, brokers = distributor.registry, await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec(placement="lb", mode=mode))
    await settle(*brokers)
    at_b = sorted(brokers[1].topics["cars"].publishers)
    await registry.set_misplaced("cars", "a", {"b": 10.0 * len(at_b)})  # all are at a
    await settle(*brokers)
    if mode == "fitted":
        shares = {"a": ProposedShare(rate=1090.0, burst=28.0), "b": ProposedShare(rate=10.0, burst=2.0)}
        version = registry.topic("cars").version
        proposal = ShareProposal(topic="cars", mode=mode, version=version, shares=shares)
        (result,) = (await registry.adapt([proposal])).results
        assert result.taken, result.problem
    before = registry.topic("cars").leases.target
    stay = at_b[:30]
    for one in stay:
        registry.pins.pin("cars", one, "a")
    await registry.leave_pinned("cars")
    cars = registry.topic("cars")
    assert {cars.placement.broker_of(one) for one in stay} == {"a"}
    assert cars.leases.target == before
    assert cars.misplaced == {"a": {"b": 10.0 * (len(at_b) - 30)}}


async def test_what_is_accounted_outlives_a_restart(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    await moved_half(distributor)
    astray = distributor.registry.topic("cars").misplaced
    assert astray["a"][""] == pytest.approx(75.0)
    stored = await records.load(distributor.store)
    assert stored.topics["cars"].misplaced == astray
    await distributor.registry.set_misplaced("cars", "a", {"b": 120.5})
    assert (await records.load(distributor.store)).topics["cars"].misplaced == {"a": {"b": 120.5}}
    await distributor.registry.set_misplaced("cars", "a", {})
    assert (await records.load(distributor.store)).topics["cars"].misplaced == {}


async def test_publishers_that_the_topic_does_not_name_take_no_share_from_those_that_it_names(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    a, b, _ = await moved_half(distributor)
    a.reports, b.reports = report(), report()
    await pass_windows(a, b)
    a.strangers = [UnassignedPublisher(topic="cars", publisher_id="nobody knows it")]
    for window in range(1, 4):
        a.reports = report(undeclared=window * 10_000)
        await pass_windows(a, b, count=1)
    assert a.share() == (550.0, 15.0)


async def test_the_tokens_of_a_move_are_shrunk_and_acknowledged_before_they_grow_elsewhere(
    distributor: Distributor,
) -> None:
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec(placement="conc"))
    await settle(a, b)
    await distributor.submit(spec(placement="lb"))
    await b.sync()
    assert b.share() == (0.0, 0.0)  # a has not said yet that it has given them up
    a.strangers = [UnassignedPublisher(topic="cars", publisher_id=b.topics["cars"].publishers[0])]
    assert (await a.sync()).moves == []
    await settle(a, b)
    assert b.share()[0] > 0


async def test_they_are_told_when_the_subscribers_have_come_to_the_new_broker_or_had_a_second_to(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    for connect, latest_s in ((True, 0.3), (False, 1.0)):
        a, b, moved = await moved_half(distributor)
        began_s = trio.current_time()
        a.reports, b.reports = report(consumed=("c",)), report()
        a.strangers = [UnassignedPublisher(topic="cars", publisher_id=min(moved))]
        assert (await a.sync()).moves == []
        answers = []

        async def wait_for_the_move(a: FakeBroker = a, answers: list[float] = answers) -> None:
            while not (await a.sync(wait_s=1.0)).moves:
                pass
            answers.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_the_move)
            await trio.sleep(0.3)
            if connect:
                b.reports = report(consumed=("c",))
            await b.sync()
        assert answers[0] - began_s == pytest.approx(latest_s)
        await distributor.registry.remove("cars", purge=False)
        await settle(a, b)
