"""LayoutJobs on brokers that other topics have: turns, promises that break, what is found full."""

from __future__ import annotations

import pytest
import trio

from distributor.model.leases import MICRO, Amount
from distributor.views import topic_view as views
from srtm.control import FITTING_ENDED
from srtm.errors import Unavailable
from tests.support.live_layouts import OFF, Live, live

pytestmark = pytest.mark.usefixtures("no_threads")


async def bikes_behind_cars(here: Live) -> None:
    """Cars are being fitted, and bikes wait for the same brokers."""
    await here.start_brokers("ab")
    await here.submit(count=40)
    await trio.sleep(0.3)
    await here.submit("bikes", count=5, placement="lb")


async def cars_fit_alone(here: Live) -> None:
    """On the one broker that there is."""
    await here.start_broker("a")
    await here.submit(count=10)
    await here.ended()


async def test_fittings_that_share_a_broker_take_turns(distributor, autojump_clock):
    async with live(distributor) as here:
        await bikes_behind_cars(here)
        await here.queued("bikes")
        assert here.view()["state"] == "running"
        assert (await here.ended())["state"] == "fits"
        assert (await here.ended("bikes"))["state"] == "fits"


async def test_a_promise_that_breaks_gives_the_broker_back(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.beside_broken("a", count=10)
        await trio.sleep(1)
        await here.start_broker("b")
        await trio.sleep(1)  # it is being measured, and news of b has not moved it
        assert (here.view("bikes")["state"], here.placed_on("bikes")) == ("running", {"a"})
        assert (await here.ended("bikes"))["state"] == "fits"
        assert set(distributor.registry.caps.brokers) == {"a"}
        assert (here.placed_on("bikes"), here.placed_on()) == ({"b"}, {"a"})


async def test_whoever_an_aborted_fitting_took_off_a_broker_is_not_put_back_by_rates(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.beside_broken("a", count=10)
        assert len(distributor.registry.topic("bikes").placement.brokers) == 1
        view = await here.ended("bikes")
        assert (view["state"], view["brokers"]) == ("does not fit", 0)
        await trio.sleep(30)  # what found no room is looked after every second
        assert here.placed_on("bikes") == set()
        await here.start_broker("b")
        await trio.sleep(5)
        assert here.placed_on("bikes") == {"b"}


async def trucks_come_to_b(here: Live, mcap: float) -> None:
    """While 80 cars, of whom a broker keeps 50, are being fitted on a. b can carry ``mcap`` msg/s, 8,000 of them
    trucks'."""
    await here.start_broker("a", mcap=20_000.0)
    await here.start_broker("b", mcap=mcap)
    await here.submit(count=80)
    await trio.sleep(0.3)
    await here.submit("trucks", count=40, options=OFF)
    assert (here.placed_on(), here.placed_on("trucks")) == ({"a"}, {"b"})


async def test_a_fitting_puts_nobody_where_a_topic_that_came_meanwhile_has_left_no_room(distributor, autojump_clock):
    async with live(distributor) as here:
        await trucks_come_to_b(here, mcap=10_000.0)
        most = 0.0
        while here.view()["state"] not in FITTING_ENDED:
            most = max(most, distributor.registry.loads["b"].allocated)
            await trio.sleep(0.2)
        assert 8_000.0 <= most <= 10_000.0


async def test_a_mark_that_another_topic_met_drives_nobody_off_the_broker(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.beside_broken("a", count=10)
        await here.ended("bikes")
        assert list(distributor.registry.caps.rates.values()) == [0.0]  # for traffic like that of both
        await here.start_broker("b")
        await here.submit(count=10)
        assert (await here.ended())["state"] == "fits"
        assert here.placed_on() == {"a"}
        await here.submit(count=9, options=OFF)
        assert here.placed_on() == {"a"}


def in_force(here, name, broker):
    """Msg/s and messages, as the broker has them."""
    return here.brokers[broker].share(name) if name in here.brokers[broker].held else (0, 0)


async def test_a_topic_that_gave_way_has_no_tokens_but_a_little_for_what_waits(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.beside_broken("a", count=10)
        await here.ended("bikes")
        await trio.sleep(10)
        assert in_force(here, "bikes", "a") == (0, 0)
        with pytest.raises(
            Unavailable, match="missing 6,000 msg/s: a keeps 120 msg/s of such traffic beside its other"
        ):
            views.assignment(distributor.registry.topic("bikes"), "p1", distributor.registry)
        here.brokers["a"].backlogs["bikes"] = 1_000
        await trio.sleep(10)
        assert in_force(here, "bikes", "a") == (132, 10)


async def test_whoever_goes_on_where_another_topic_needs_the_broker_is_held_to_what_it_keeps(
    distributor, autojump_clock
):
    registry = distributor.registry
    async with live(distributor) as here:
        await here.beside_broken("a", count=10)
        await here.ended("bikes")
        await here.start_broker("b")
        await trio.sleep(5)
        assert (here.placed_on(), here.placed_on("bikes")) == ({"a"}, {"b"})
        await registry.set_misplaced("bikes", "a", {"b": 3_000.0})  # plain NSQ clients, which cannot be told
        assert registry.topic("bikes").leases.target["a"] == Amount(132 * MICRO, 10 * MICRO)
        await registry.remove("cars", purge=False)  # nobody needs it any more
        await registry.set_misplaced("bikes", "a", {"b": 2_999.0})
        assert registry.topic("bikes").leases.target["a"].rate > 2_999 * MICRO
