"""LayoutJobs interrupted: a silent broker, a changed or removed topic, a defect, a store that is away."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from distributor.jobs.live_search import LiveSearch
from distributor.model.cluster import Placement
from srtm.control import FITTING_ENDED
from srtm.errors import Unavailable
from tests.support.live_layouts import Live, live

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_a_broker_that_never_reports_ends_it_and_nobody_is_moved(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name)).silent = True
        await here.submit(count=80)
        before = here.placed_on()
        view = await here.ended()
        assert here.placed_on() == before
    assert (view["state"], view["outcome"]) == ("does not fit", "a broker is silent")
    assert "did not report" in view["reason"]


async def one_of_two(here: Live) -> str:
    """A topic is being fitted, on two brokers of three; gives one of the two."""
    await here.start_brokers("abc")
    await here.submit(count=80)
    while len(here.placed_on()) < 2:  # noqa: ASYNC110 - virtual time
        await trio.sleep(0.2)
    return sorted(here.placed_on())[-1]


async def one_of_two_dies(here: Live) -> tuple[str, Placement]:
    """As above, but it is proven dead; gives it, and the placement then."""
    died = await one_of_two(here)
    registry = here.distributor.registry
    placement = registry.topic("cars").placement
    here.scopes[died].cancel()
    await registry.declare_dead(died, "1")
    return died, placement


async def test_a_broker_that_falls_silent_is_left_out(distributor, autojump_clock):
    async with live(distributor) as here:
        gone = await one_of_two(here)
        here.scopes[gone].cancel()
        view = await here.ended()
        assert (view["state"], view["brokers"]) == ("fits", 2)
        assert gone not in here.placed_on()


async def test_the_publishers_of_a_broker_that_dies_keep_their_places_for_the_grace_also_while_they_are_fitted(
    distributor, autojump_clock
):
    async with live(distributor) as here:
        died, placement = await one_of_two_dies(here)
        await trio.sleep(distributor.registry.config.rejoin_grace_s - 0.5)
        assert distributor.registry.topic("cars").placement is placement
        view = await here.ended()
        assert (view["state"], view["brokers"]) == ("fits", 2)
        assert died not in here.placed_on()


async def test_a_broker_that_is_back_within_its_grace_has_its_publishers_fitted_where_they_were(
    distributor, autojump_clock
):
    async with live(distributor) as here:
        died, placement = await one_of_two_dies(here)
        await trio.sleep(5)
        here.brokers[died].restart()
        here.nursery.start_soon(here.run_broker, here.brokers[died])
        view = await here.ended()
        assert (view["state"], view["brokers"]) == ("fits", 2)
        assert distributor.registry.topic("cars").placement is placement


async def test_a_topic_that_is_changed_meanwhile_is_fitted_as_it_is_now(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("abc")
        await here.submit(count=80)
        await trio.sleep(1.5)
        await here.submit(count=120)
        view = await here.ended()
        assert (view["state"], view["brokers"]) == ("fits", 3)


async def test_what_was_found_outlives_a_change_of_who_proposes_shares_and_how(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("abc")
        await here.submit(count=120, mode="fitted")
        while not here.view()["rounds"]:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.2)
        await distributor.registry.set_options(
            "cars", lambda old: replace(old, mode="static", adaptation=replace(old.adaptation, dead_band=0.3))
        )
        rounds = [len(here.view()["rounds"])]
        with trio.fail_after(200):
            while here.view()["state"] not in FITTING_ENDED:
                await trio.sleep(0.2)
                rounds.append(len(here.view()["rounds"]))
        assert (here.view()["state"], rounds) == ("fits", sorted(rounds))
        assert rounds[-1] > rounds[0]


async def test_a_topic_that_is_removed_meanwhile_is_fitted_no_longer(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=80)
        await trio.sleep(0.5)
        await distributor.registry.remove("cars", purge=False)
        here.layouts.cancel("cars")
        await trio.sleep(5)
        assert distributor.registry.fittings == {}
        assert distributor.registry.being_fitted == set()
        assert (await here.brokers["a"].sync()).measurements == []


async def test_a_topic_that_is_removed_while_its_fitting_waits_for_its_turn_ends_it(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=40)
        await trio.sleep(0.3)
        await here.submit("bikes", count=5)
        await here.queued("bikes")
        await distributor.registry.remove("bikes", purge=False)
        assert (await here.ended())["state"] == "fits"
        await trio.sleep(1)
        assert distributor.registry.being_fitted == set()


async def test_a_topic_that_is_removed_just_as_news_wake_its_fitting_ends_it(distributor, monkeypatch, autojump_clock):
    apply = distributor.store.apply

    async def apply_as_news_come(changes: object) -> None:
        await apply(changes)
        here.syncing.news.set()  # the task that waits for news is woken, and runs once the topic has gone

    async with live(distributor, traffic=()) as here:
        await here.start_broker("a")
        await here.submit(count=40)
        await trio.sleep(5.3)
        assert here.view()["state"] == "waiting"
        monkeypatch.setattr(distributor.store, "apply", apply_as_news_come)
        await distributor.registry.remove("cars", purge=False)
        await trio.sleep(5)
        assert distributor.registry.being_fitted == set()


async def test_a_defect_ends_the_fitting_that_meets_it_and_not_the_leader(distributor, monkeypatch, autojump_clock):
    def defective(*_given: object) -> float:
        raise KeyError("a defect")

    async with live(distributor) as here:
        await here.start_broker("a")
        with monkeypatch.context() as patched:
            patched.setattr(LiveSearch, "_measure", defective)
            await here.submit(count=40)
            view = await here.ended()
        assert (view["state"], "KeyError" in view["reason"]) == ("failed", True)
        assert not distributor.registry.fittings["cars"].running  # so the next leader does not meet it again
        await here.submit("bikes", count=5)
        assert (await here.ended("bikes"))["state"] == "fits"


async def test_a_store_that_is_away_is_waited_for(distributor, monkeypatch, autojump_clock):
    apply = distributor.store.apply

    async def refuse(_changes: object) -> None:
        raise Unavailable("the store is away")

    async with live(distributor) as here:
        await here.start_brokers("ab")
        await here.submit(count=80)
        await trio.sleep(0.5)
        monkeypatch.setattr(distributor.store, "apply", refuse)
        await trio.sleep(10)
        assert len(here.placed_on()) == 1
        monkeypatch.setattr(distributor.store, "apply", apply)
        assert (await here.ended())["state"] == "fits"
