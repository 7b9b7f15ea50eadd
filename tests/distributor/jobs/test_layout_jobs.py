"""LayoutJobs live, over simulated brokers in virtual time: placed, measured, searched, concluded."""

from __future__ import annotations

import pytest
import trio

from distributor.fitting.events import Scaler
from distributor.fitting.task import FittingOptions
from distributor.jobs import explain as explaining
from distributor.prediction.forecast import Service
from srtm.errors import Unavailable
from tests.support.live_layouts import ALWAYS, OFF, live

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_a_topic_that_fits_where_it_is_stays_there_and_that_is_said_with_confidence(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.start_broker("b")
        await here.submit(count=40)
        view = await here.ended()
    assert (view["state"], view["certain"], view["brokers"]) == ("fits", True, 1)
    assert len(view["rounds"]) == 1
    assert view["measured"][0]["processing_ms"] == pytest.approx(0.8)
    assert 1 <= view["took_s"] < 6
    decision = distributor.registry.decisions["cars"][-1].lines[0]
    assert decision.startswith("fitting: fits on 1 broker (1 round")


async def test_one_broker_that_is_too_slow_becomes_two_and_is_marked_with_what_it_keeps(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("abc")
        await here.submit(count=80)  # 80 at once take 1.6 ms, 40 of them 0.8 ms
        assert len(here.placed_on()) == 1
        view = await here.ended()
        assert (view["state"], view["brokers"], len(here.placed_on())) == ("fits", 2, 2)
    assert [one["brokers"] for one in view["rounds"]] == [1, 2]
    lost = view["rounds"][0]["measured"][0]
    assert (lost["verdict"], lost["total_ms"]) == ("above", pytest.approx(1.6))
    assert any("processing takes too long" in line for line in view["explanation"])
    (kept,) = distributor.registry.caps.rates.values()
    assert 8_000 <= kept < 16_000


async def test_when_brokers_run_out_what_is_missing_is_said_and_the_best_stays(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=80)
        view = await here.ended()
    assert (view["state"], view["missing"]) == ("does not fit", {"brokers": 1, "burst": 0.0, "mcap": 0.0})
    assert here.placed_on() == {"a"}
    assert view["explanation"][-1] == "missing: 1 more broker"


async def test_the_scaler_is_asked_for_what_is_missing_and_what_it_starts_is_used(distributor, autojump_clock):
    async with live(distributor, Scaler.PROCESS) as here:
        here.scaler.names = ["n1", "n2"]
        await here.start_broker("a")
        await here.submit(count=80)
        view = await here.ended()
        assert here.placed_on() == {"a", "n1"}
    assert (view["state"], here.scaler.asked) == ("fits", [1])


async def test_where_there_is_no_broker_at_all_the_scaler_is_asked_before_any_message(distributor, autojump_clock):
    async with live(distributor, Scaler.PROCESS) as here:
        here.scaler.names = ["n1", "n2"]
        await here.submit(count=40)
        view = await here.ended()
        assert here.placed_on() == {"n1"}
    assert (view["state"], here.scaler.asked) == ("fits", [1])


async def test_a_scaler_that_brings_nothing_ends_it(distributor, autojump_clock):
    async with live(distributor, Scaler.COMMAND) as here:
        await here.start_broker("a")
        await here.submit(count=80)
        view = await here.ended()
    assert (view["state"], here.scaler.asked) == ("does not fit", [1])
    assert view["explanation"][-1] == "the scaler was asked: 0 of 1 broker came within 30 s"


async def test_why_a_scaler_failed_is_said_where_people_look(distributor, autojump_clock):
    async with live(distributor, Scaler.COMMAND) as here:
        here.scaler.trouble = Unavailable("the scaler's command ended with status 3")
        await here.start_broker("a")
        await here.submit(count=80)
        view = await here.ended()
    assert view["explanation"][-1] == "the scaler was asked: the scaler's command ended with status 3"


async def test_without_traffic_the_placement_by_rates_stands_until_messages_come(distributor, autojump_clock):
    async with live(distributor, traffic=()) as here:
        await here.start_brokers("ab")
        await here.submit(count=80)
        await trio.sleep(60)
        assert here.view()["state"] == "waiting"
        assert "no traffic" in here.view()["reason"]
        here.traffic.add("cars")
        view = await here.ended()
    assert (view["state"], view["brokers"]) == ("fits", 2)


@pytest.mark.parametrize("method", ["off", "paper"])
async def test_a_topic_is_fitted_as_was_asked_also_when_its_publishers_change(distributor, method, autojump_clock):
    async with live(distributor, default=ALWAYS) as here:
        await here.start_broker("a")
        await here.submit(count=10, options=FittingOptions(method=method, rounds_s=10))
        await here.ended()
        await here.submit(count=20, options=None)
        assert (await here.ended())["method"] == method


async def test_off_is_off_and_the_same_topic_again_is_not_fitted_anew(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=40, options=OFF)
        assert here.view()["state"] == "off"
        topic = distributor.registry.topic("cars")
        await here.layouts.submitted(topic, topic, None)
        assert here.view()["state"] == "off"
        await here.layouts.submitted(topic, topic, ALWAYS)
        assert (await here.ended())["state"] == "fits"


async def test_the_papers_fitting_runs_by_its_rounds(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("ab")
        await here.submit(count=80, options=FittingOptions(method="paper", rounds_s=10))
        view = await here.ended(within_s=600)
    assert (view["state"], view["method"], view["rounds_s"]) == ("fits", "paper", 10)
    assert view["took_s"] >= 30
    assert all(one["took_s"] >= 10 for one in view["rounds"])


async def test_what_messages_took_of_a_broker_is_kept_and_plans_are_made_with_it(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_brokers("abc")
        await here.submit(count=80)
        assert explaining.services("cars", distributor.registry, here.syncing) == {}
        view = await here.ended()
        (first,) = view["rounds"][0]["measured"]
        assert view["service_us"] == {first["broker"]: pytest.approx(20.0)}  # of that which was recorded
        known = {first["broker"]: Service(20_000, "measured")}
        assert explaining.services("cars", distributor.registry, here.syncing) == known
        assert explaining.services("lorries", distributor.registry, here.syncing) == known  # another topic's
        await here.submit(count=10)  # that fits at once, nothing is recorded
        await here.ended()
        assert explaining.services("cars", distributor.registry, here.syncing) == known
        await here.submit(options=OFF, count=10)
        assert here.view()["service_us"] == {first["broker"]: pytest.approx(20.0)}


async def test_a_laboratorys_service_time_is_shown_with_what_was_measured_and_goes_before_it(
    distributor, autojump_clock
):
    async with live(distributor) as here:
        broker = await here.start_broker("a")
        broker.lab_service_time_ns = 21_000
        await here.submit(count=80)
        view = await here.ended()
        assert [one["lab_service_time_ns"] for one in view["measured"]] == [21_000]
        assert view["service_us"].keys() == {"a"}
        found = explaining.services("cars", distributor.registry, here.syncing)
        assert found == {"a": Service(21_000, "laboratory")}
