"""FittingManager on brokers that other topics have: turns, the ramp, promises that break, what is found full."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from distributor.jobs.fitting_run import IN_FORCE_WITHIN_S
from distributor.model.full_brokers import CapacityCaps, TrafficClass
from distributor.model.leases import MICRO, Amount
from distributor.storage import cluster_rows as records
from distributor.views import topic_view as views
from srtm.control import FITTING_ENDED
from srtm.errors import Unavailable
from srtm.topics.spec import Slo
from tests.support.live_fittings import OFF, Live, live

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
        await trio.sleep(0.3)
        assert (here.view()["state"], here.view("bikes")["state"]) == ("running", "queued")
        assert (await here.ended())["state"] == "fits"
        assert (await here.ended("bikes"))["state"] == "fits"


async def test_beside_another_topic_publishers_are_let_in_step_by_step(distributor, autojump_clock):
    async with live(distributor) as here:
        await cars_fit_alone(here)
        await here.submit("bikes", count=30)
        bikes = distributor.registry.topic("bikes")
        with pytest.raises(Unavailable, match="step by step"):
            here.fittings.check_let_in(bikes, "p1")
        seen = []
        while here.view("bikes")["state"] != "fits":
            count = int((distributor.registry.topic("bikes").placement.at >= 0).sum())
            seen += [count] if not seen or seen[-1] != count else []
            await trio.sleep(0.2)
        assert seen[-3:] == [3, 9, 30]
        here.fittings.check_let_in(distributor.registry.topic("bikes"), "p1")


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


async def test_a_promise_that_breaks_while_what_waited_is_let_go_is_not_left_broken_until_all_of_it_is(
    distributor, autojump_clock
):
    async with live(distributor) as here:
        await cars_fit_alone(here)
        here.brokers["a"].backlogs["bikes"] = 5  # for ever
        await here.submit("bikes", count=30)
        await trio.sleep(0.5)
        while distributor.registry.topic("bikes").placement.missing:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        all_there_s = trio.current_time()
        here.brokers["a"].broken.add("cars")
        assert (await here.ended("bikes"))["state"] == "does not fit"
        assert trio.current_time() - all_there_s < IN_FORCE_WITHIN_S / 2


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


async def test_beside_a_topic_that_came_meanwhile_publishers_are_let_in_step_by_step(distributor, autojump_clock):
    async with live(distributor) as here:
        await trucks_come_to_b(here, mcap=18_000.0)
        seen = []
        while here.view()["state"] not in FITTING_ENDED:
            there = distributor.registry.topic("cars").placement.assigned.get("b", 0.0)
            seen += [there] if there and there not in seen else []
            await trio.sleep(0.2)
        assert here.view()["state"] == "fits"
    assert [round(one / seen[-1], 1) for one in seen] == [0.1, 0.3, 1.0]


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


async def test_what_a_fitting_that_failed_had_found_full_stays_so(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.beside_broken("ab", count=40, placement="lb")
        here.brokers["b"].silent = True  # before it has reported anything
        assert (await here.ended("bikes"))["state"] == "failed"
        await trio.sleep(30)
        assert here.placed_on("bikes") == {"b"}


async def test_what_is_found_full_is_stored_while_the_fitting_runs_and_stays_so_as_it_takes_publishers_off(
    distributor, autojump_clock
):
    async with live(distributor) as here:
        await here.beside_broken("ab", count=40, placement="lb")
        marked = []
        while here.view("bikes")["state"] not in FITTING_ENDED:
            if here.placed_on("bikes") == {"b"}:
                kept = (await records.load(distributor.store)).caps
                running = distributor.registry.fittings["bikes"].running
                marked.append((running, kept.brokers, distributor.registry.caps == kept))
            await trio.sleep(0.2)
    assert len(marked) > 5
    assert {(running, *brokers, same) for running, brokers, same in marked} == {(True, "a", True)}


async def test_what_a_fitting_insists_on_storing_takes_nothing_from_what_is_stored_meanwhile(
    distributor, monkeypatch, autojump_clock
):
    apply, note_full = distributor.store.apply, distributor.registry.note_full
    others = CapacityCaps().with_caps(
        Slo(percentile=50, latency_ms=9), TrafficClass(process="poisson", batch=1, group=1), {"b": 1.0}
    )
    refused = []

    async def refuse(_changes: object) -> None:
        refused.append(True)
        monkeypatch.setattr(distributor.store, "apply", apply)
        raise Unavailable("the store is away")

    async def note_with_trouble(name: str, found: CapacityCaps) -> None:
        if not refused:
            monkeypatch.setattr(distributor.store, "apply", refuse)
            here.nursery.start_soon(note_full, "cars", others)
        await note_full(name, found)

    monkeypatch.setattr(distributor.registry, "note_full", note_with_trouble)
    async with live(distributor) as here:
        await here.beside_broken("ab", count=40, placement="lb")
        await here.ended("bikes")
        assert refused
        assert set(distributor.registry.caps.brokers) == {"a", "b"}


def in_force(here, name, broker):
    """Msg/s and messages, as the broker has them."""
    return here.brokers[broker].share(name) if name in here.brokers[broker].held else (0, 0)


async def test_shares_are_of_who_is_let_in_at_each_step(distributor, autojump_clock):
    async with live(distributor) as here:
        await cars_fit_alone(here)
        await here.submit("bikes", count=30)
        seen = []
        while here.view("bikes")["state"] != "fits":
            seen.append(in_force(here, "bikes", "a"))
            await trio.sleep(0.2)
    assert [one for one in dict.fromkeys(seen) if one != (0, 0)][-3:] == [(660, 50), (1980, 150), (6600, 500)]


async def test_a_step_waits_for_shares_and_not_for_those_who_send_without_a_place(distributor, autojump_clock):
    async with live(distributor) as here:
        await cars_fit_alone(here)
        here.brokers["a"].backlogs["bikes"] = 1_000  # they wait for tokens, and go on
        await here.submit("bikes", count=30)
        came_s = []
        for share in [(660, 50), (1980, 150), (6600, 500)]:
            while in_force(here, "bikes", "a") != share:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            came_s.append(trio.current_time())
    assert [later - earlier < IN_FORCE_WITHIN_S for earlier, later in pairwise(came_s)] == [True, True]


async def test_a_topic_whose_fitting_waits_for_its_turn_is_served_as_rates_place_it(distributor, autojump_clock):
    async with live(distributor) as here:
        await bikes_behind_cars(here)
        await trio.sleep(0.5)
        assert here.view("bikes")["state"] == "queued"
        assert all(in_force(here, "bikes", name)[0] > 0 for name in "ab")
        here.fittings.check_let_in(distributor.registry.topic("bikes"), "p1")
        seen = set()
        while here.view("bikes")["state"] not in FITTING_ENDED:
            seen.add(int((distributor.registry.topic("bikes").placement.at >= 0).sum()))
            await trio.sleep(0.2)
        assert seen == {5}  # and is not let in step by step then
        assert here.view("bikes")["state"] == "fits"


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


async def test_what_kept_the_others_promise_in_the_step_before_stays(distributor, autojump_clock):
    async with live(distributor) as here:
        await cars_fit_alone(here)
        await here.submit("bikes", count=30)
        while in_force(here, "bikes", "a") != (1980, 150):  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        while in_force(here, "bikes", "a") != (6600, 500):  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        here.brokers["a"].broken.add("cars")
        assert (await here.ended("bikes"))["state"] == "does not fit"
        await trio.sleep(10)
        assert in_force(here, "bikes", "a") == (1980, 150)
