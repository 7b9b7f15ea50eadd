"""What the next leader knows of a fitting: how it ended, that it runs, how it was asked for."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import trio

from distributor.fitting.task import FittingOptions
from tests.support.distributor_in_process import Distributor, spec
from tests.support.live_layouts import ALWAYS, OFF, live
from tests.support.measuring_broker import MeasuringBroker

STORES = Path(__file__).parents[1] / "storage" / "stores"
pytestmark = pytest.mark.usefixtures("no_threads")


async def test_how_it_ended_and_what_is_full_outlive_the_distributor(distributor, tmp_path, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("ab")
        await here.submit(count=80)
        view = await here.ended()
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    assert again.registry.caps == distributor.registry.caps
    assert again.registry.fittings == distributor.registry.fittings
    async with live(again) as here:
        assert here.view() == view
    await again.aclose()


async def test_what_was_running_is_begun_again_from_the_layout_in_force(distributor, tmp_path, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name)).silent = True
        await here.submit(count=80)
        await trio.sleep(2)
        assert here.view()["state"] == "running"
        before = here.placed_on()
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again) as here:
        await here.start_brokers("ab")
        assert here.placed_on() == before
        assert (await here.ended())["state"] == "fits"
    await again.aclose()


async def test_it_is_not_begun_again_before_all_brokers_on_record_were_heard(distributor, tmp_path, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name, mcap=5_000)).silent = True
        await here.submit(count=40)  # 8,000 msg/s: more than one of them carries
        await trio.sleep(2)
        before = here.placed_on()
        assert (here.view()["state"], before) == ("running", {"a", "b"})
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again) as here:
        await here.start_broker("a", mcap=5_000)
        await trio.sleep(2)
        assert (here.view()["state"], here.placed_on()) == ("queued", before)
        await here.start_broker("b", mcap=5_000)
        assert (await here.ended())["state"] == "fits"
        assert here.placed_on() == before
    await again.aclose()


async def test_a_fitting_that_is_switched_off_meanwhile_stays_off_also_for_the_next_leader(
    distributor, tmp_path, autojump_clock
):
    async with live(distributor) as here:
        (await here.start_broker("a")).silent = True
        await here.submit(count=80)
        await trio.sleep(2)
        assert here.view()["state"] == "running"
        await here.submit(count=80, options=OFF)
        await trio.sleep(1)
        assert here.view()["state"] == "off"
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again) as here:
        await here.start_broker("a")
        await trio.sleep(30)
        assert here.view()["state"] == "off"
    await again.aclose()


async def test_a_leader_killed_right_after_a_submission_leaves_its_fitting_to_the_next(
    distributor, tmp_path, autojump_clock
):
    async with live(distributor) as here:
        await here.start_broker("a")
        intended = here.layouts.intended(FittingOptions(method="paper", rounds_s=10))
        await distributor.registry.submit(spec(count=40, rate=200.0), fitting=intended)
        here.nursery.cancel_scope.cancel()  # before it has heard of it
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again) as here:
        await here.start_broker("a")
        view = await here.ended()
        assert (view["state"], view["method"], view["rounds_s"]) == ("fits", "paper", 10)
    await again.aclose()


async def test_a_distributor_that_fits_nothing_by_itself_forgets_no_topics_way(distributor, tmp_path, autojump_clock):
    async with live(distributor, default=OFF) as here:
        await here.start_broker("a")
        await here.submit(count=10, options=FittingOptions(method="paper", rounds_s=10))
        await here.ended()
        await here.submit(count=20, options=None)
        assert here.view()["state"] == "off"
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again, default=ALWAYS) as here:
        await here.start_broker("a")
        await here.submit(count=30, options=None)
        assert (await here.ended())["method"] == "paper"
    await again.aclose()


async def test_a_fitting_that_an_earlier_version_had_under_way_is_begun_again(tmp_path, autojump_clock):
    """A store of 3cf09e8: the topic is fitted by the method that was called "sequential"."""
    path = tmp_path / "store.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.executescript((STORES / "3cf09e8.sql").read_text())
        shown = {"state": "running", "method": "sequential", "rounds": [], "service_us": {"a": 20.0}, "reason": ""}
        row = ("vans", 1, "sequential", 60.0, json.dumps(shown))
        connection.execute("INSERT INTO fittings VALUES (?, ?, ?, ?, ?)", row)
    connection.close()
    opened = await Distributor.open(path)
    async with live(opened, traffic=["vans"]) as here:
        assert (here.view("vans")["state"], here.view("vans")["method"]) == ("queued", "always")
        for name in "abcfd":  # the store does not know d: the others are asked first who has that name
            here.brokers[name] = broker = MeasuringBroker(
                name, here.syncing, mcap=2_000.0, layouts=here.layouts, traffic=here.traffic, incarnation="2"
            )
            await broker.settle()
            here.nursery.start_soon(here.run_broker, broker)
        view = await here.ended("vans")
    assert (view["state"], view["outcome"]) == ("fits", "fits")
    assert view["service_us"]["a"] == pytest.approx(20.0)
    await opened.aclose()
