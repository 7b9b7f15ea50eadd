"""Fittings on brokers that other topics have: turns, the ramp, promises that break, what is found full."""

from __future__ import annotations

import pytest
import trio

from distributor import records
from distributor.marks import FullMarks, TrafficClass
from srtm.control import FITTING_ENDED
from srtm.errors import Unavailable
from srtm.topic import Slo
from tests.support.live_fittings import OFF, live

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_fittings_that_share_a_broker_take_turns(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("ab")
        await here.submit(count=40)
        await trio.sleep(0.3)
        await here.submit("bikes", count=5, placement="lb")
        await trio.sleep(0.3)
        assert (here.view()["state"], here.view("bikes")["state"]) == ("running", "queued")
        assert (await here.ended())["state"] == "fits"
        assert (await here.ended("bikes"))["state"] == "fits"


async def test_beside_another_topic_publishers_are_let_in_step_by_step(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=10)
        await here.ended()
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
        assert set(distributor.registry.marks.brokers) == {"a"}
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


async def test_a_mark_that_another_topic_met_drives_nobody_off_the_broker(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.beside_broken("a", count=10)
        await here.ended("bikes")
        assert list(distributor.registry.marks.kept.values()) == [0.0]  # for traffic like that of both
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
                kept = (await records.load(distributor.store)).marks
                running = distributor.registry.fittings["bikes"].running
                marked.append((running, kept.brokers, distributor.registry.marks == kept))
            await trio.sleep(0.2)
    assert len(marked) > 5
    assert {(running, *brokers, same) for running, brokers, same in marked} == {(True, "a", True)}


async def test_what_a_fitting_insists_on_storing_takes_nothing_from_what_is_stored_meanwhile(
    distributor, monkeypatch, autojump_clock
):
    apply, note_full = distributor.store.apply, distributor.registry.note_full
    others = FullMarks().marked(
        Slo(percentile=50, latency_ms=9), TrafficClass(process="poisson", batch=1, group=1), {"b": 1.0}
    )
    refused = []

    async def refuse(_changes: object) -> None:
        refused.append(True)
        monkeypatch.setattr(distributor.store, "apply", apply)
        raise Unavailable("the store is away")

    async def note_with_trouble(name: str, found: FullMarks) -> None:
        if not refused:
            monkeypatch.setattr(distributor.store, "apply", refuse)
            here.nursery.start_soon(note_full, "cars", others)
        await note_full(name, found)

    monkeypatch.setattr(distributor.registry, "note_full", note_with_trouble)
    async with live(distributor) as here:
        await here.beside_broken("ab", count=40, placement="lb")
        await here.ended("bikes")
        assert refused
        assert set(distributor.registry.marks.brokers) == {"a", "b"}
