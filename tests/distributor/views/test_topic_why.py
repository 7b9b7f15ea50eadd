"""Why a topic is late, asked of a distributor whose brokers report."""

from __future__ import annotations

import msgspec
import pytest
import trio

from distributor.model.leases import Amount
from distributor.model.share_log import ShareChange
from distributor.views.topic_view import topic_view
from distributor.views.topic_why import least_rate, topic_why
from srtm.control import UnassignedPublisher
from srtm.errors import NotLeader
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec
from tests.support.topic_reports import period, report

pytestmark = pytest.mark.usefixtures("no_threads")


async def late_at_a(distributor: Distributor) -> tuple[FakeBroker, FakeBroker]:
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    a.reports, b.reports = [report(period(80.0, 1.0), rate=550.0)], [report(period(1.0, 1.0), rate=550.0)]
    for broker in (a, b):
        await broker.sync()
    return a, b


def asked(distributor: Distributor):
    return topic_why(distributor.registry.topic("cars"), distributor.registry, distributor.syncing)


async def test_the_shares_and_the_capacity_of_the_late_broker_are_its_figures(distributor):
    await late_at_a(distributor)
    found = asked(distributor)
    assert (found.promise, found.cause, found.broker) == ("broken", "bucket", "a")
    assert (found.figures["share_rate"], found.figures["topic_rate"]) == (550.0, 1100.0)
    assert found.figures["topic_traffic"] == pytest.approx(1000.0)  # declared: the topic is static


async def test_a_broker_without_a_part_in_the_topic_is_found_too(distributor):
    await late_at_a(distributor)
    (c,) = await distributor.brokers("c")
    c.reports = [report(period(900.0, 1.0), rate=0.0, backlog=600)]
    await c.sync()
    assert asked(distributor).broker == "c"


async def test_misplaced_publishers_are_named(distributor, mock_clock):
    a, _ = await late_at_a(distributor)
    registry = distributor.registry
    there = registry.topic("cars").placement.ids_of["b"][:3]
    a.strangers = [UnassignedPublisher(topic="cars", publisher_id=publisher) for publisher in there]
    await a.sync()
    await registry.set_misplaced("cars", "a", {"b": 300.0})
    found = asked(distributor)
    assert (found.cause, found.figures["misplaced_rate"]) == ("placement", 300.0)
    assert all(publisher in found.sentence for publisher in there)


async def test_publishers_that_do_not_move_are_named(distributor):
    await late_at_a(distributor)
    registry = distributor.registry
    stays = registry.topic("cars").placement.ids_of["b"][0]
    registry.pins.pin("cars", stays, "a")
    (finding,) = [one for one in asked(distributor).also if one.cause == "placement"]
    assert finding.sentence == f"1 publisher did not move when told, and stays at a ({stays})"


async def test_a_broker_that_ended_is_the_cause_while_publishers_belong_there(distributor):
    await late_at_a(distributor)
    await distributor.registry.declare_dead("b", "1")
    found = asked(distributor)
    assert (found.cause, found.broker) == ("placement", "b")
    assert "b is dead, and 50 publishers belong there" in found.sentence


async def test_a_standby_refers_to_the_leader(distributor):
    await late_at_a(distributor)
    distributor.registry.state.leads = False
    with pytest.raises(NotLeader):
        asked(distributor)


async def test_the_view_has_the_age_of_a_report(distributor, mock_clock):
    _, b = await late_at_a(distributor)
    mock_clock.jump(2.0)
    b.reports = [msgspec.structs.replace(b.reports[0], received=5)]
    await b.sync()
    view = topic_view(distributor.registry.topic("cars"), distributor.registry, distributor.syncing)
    assert [place.report_s_ago for place in view.brokers] == [pytest.approx(2.0), pytest.approx(0.0)]


def view_of_cars(distributor: Distributor):
    return topic_view(distributor.registry.topic("cars"), distributor.registry, distributor.syncing)


async def test_a_topic_on_a_broker_that_is_not_started_again_says_so(distributor, autojump_clock):
    await late_at_a(distributor)
    (c,) = await distributor.brokers("c")
    assert view_of_cars(distributor).reason == "100 publishers send 1,000 msg/s: placed on 2 of 3 brokers"
    await trio.sleep(distributor.registry.config.liveness_s + 1)
    await c.sync()
    view = view_of_cars(distributor)
    assert [place.broker_state for place in view.brokers] == ["silent", "silent"]
    assert view.reason == ("a is silent, and 50 publishers belong there; b is silent, and 50 publishers belong there")


async def test_the_header_follows_the_placement(distributor):
    await late_at_a(distributor)
    before = view_of_cars(distributor)
    await distributor.brokers("c")
    await distributor.registry.drain("a", force=True)
    after = view_of_cars(distributor)
    assert after.placement_version > before.placement_version
    assert after.reason.endswith("placed on 2 of 3 brokers")
    assert {place.broker_state for place in after.brokers} >= {"draining", "live"}


@pytest.mark.parametrize(
    ("at_s", "least"),
    [([], None), ([-30], 500.0), ([-90, -70], 300.0), ([-90, -70, -10], 0.0), ([-200, -50], 300.0)],
)
def test_the_least_share_of_the_last_minute_is_one_that_was_in_force_in_it(at_s, least):
    shares = [{"a": Amount(rate=500_000_000, burst=1)}, {"a": Amount(rate=300_000_000, burst=1)}, {}]
    changes = [
        ShareChange(wall_ns=1000 * 10**9 + at * 10**9, mode="fitted", reason="", shares=each)
        for at, each in zip(at_s, shares, strict=False)
    ]
    assert least_rate("a", changes, 1000 * 10**9) == least
