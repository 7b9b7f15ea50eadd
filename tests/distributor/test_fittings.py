"""Fittings live, over simulated brokers in virtual time: placed, measured, searched, concluded, and what interferes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import trio

from distributor import records
from distributor.claims import Claims
from distributor.fitting_events import Scaler
from distributor.fitting_run import FittingRun, Surroundings
from distributor.fitting_setup import FittingOptions
from distributor.fitting_view import ENDED
from distributor.fittings import Fittings
from distributor.marks import FullMarks, TrafficClass
from distributor.measuring import Measuring
from distributor.scaler import NoScaler
from distributor.syncing import Syncing
from srtm.errors import Unavailable
from srtm.log import Log
from srtm.topic import Slo
from tests.support.distributor_in_process import Distributor, spec
from tests.support.measuring_broker import MeasuringBroker

pytestmark = pytest.mark.usefixtures("no_threads")

SEQUENTIAL = FittingOptions()
OFF = FittingOptions(method="off")


@dataclass
class FakeScaler:
    """Starts brokers of names to come."""

    names: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    start: Callable[[str], None] = lambda _name: None

    async def ask(self, brokers: int) -> None:
        self.asked.append(brokers)
        for _ in range(brokers):
            if self.names:
                self.start(self.names.pop(0))

    async def run(self) -> None:
        await trio.sleep_forever()


@dataclass
class Live:
    distributor: Distributor
    fittings: Fittings
    syncing: Syncing
    scaler: FakeScaler
    nursery: trio.Nursery
    brokers: dict[str, MeasuringBroker] = field(default_factory=dict)
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)

    async def start_broker(self, name: str, service_ns: int = 20_000, mcap: float = 0.0) -> MeasuringBroker:
        broker = MeasuringBroker(name, self.syncing, mcap, fittings=self.fittings, service_ns=service_ns)
        broker.traffic = next((one.traffic for one in self.brokers.values()), {"cars"})
        self.brokers[name] = broker
        await broker.settle()
        self.nursery.start_soon(self.run_broker, broker)
        return broker

    async def run_broker(self, broker: MeasuringBroker) -> None:
        with trio.CancelScope() as self.scopes[broker.name]:
            await broker.run()

    async def submit(self, name: str = "cars", options: FittingOptions | None = SEQUENTIAL, **more: object) -> None:
        registry = self.distributor.registry
        before = registry.topics.get(name)
        document = {"rate": 200.0, "burst": 500, "slo": {"percentile": 99, "latency_ms": 1}, **more}
        topic = await registry.submit(spec(name, **document), fitting=self.fittings.intended(options))
        await self.fittings.submitted(topic, before, options)

    def view(self, name: str = "cars") -> dict[str, object]:
        return self.fittings.view(self.distributor.registry.topic(name))

    async def ended(self, name: str = "cars", within_s: float = 200.0) -> dict[str, object]:
        with trio.fail_after(within_s):
            while self.view(name)["state"] not in ENDED:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.2)
        return self.view(name)

    def placed_on(self, name: str = "cars") -> set[str]:
        return set(self.distributor.registry.topic(name).placement.brokers)


@asynccontextmanager
async def live(
    distributor: Distributor, scaler: Scaler = Scaler.NONE, default: FittingOptions = OFF
) -> AsyncIterator[Live]:
    registry = distributor.registry
    measuring = Measuring(registry.stir)
    syncing = Syncing(registry, measuring.requests)
    fake = FakeScaler()
    around = Surroundings(
        registry=registry,
        syncing=syncing,
        measuring=measuring,
        claims=Claims(),
        scaler=scaler,
        scaling=NoScaler() if scaler is Scaler.NONE else fake,
        log=Log("test", lambda _line: None),
    )
    fittings = Fittings(around, default, wall_s=lambda: 0.0)
    async with trio.open_nursery() as nursery:
        made = Live(distributor, fittings, syncing, fake, nursery)
        fake.start = lambda name: nursery.start_soon(made.start_broker, name)
        nursery.start_soon(registry.run)
        nursery.start_soon(fittings.run)
        yield made
        nursery.cancel_scope.cancel()


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
        for name in "abc":
            await here.start_broker(name)
        await here.submit(count=80)  # 80 at once take 1.6 ms, 40 of them 0.8 ms
        assert len(here.placed_on()) == 1
        view = await here.ended()
        assert (view["state"], view["brokers"], len(here.placed_on())) == ("fits", 2, 2)
    assert [one["brokers"] for one in view["rounds"]] == [1, 2]
    lost = view["rounds"][0]["measured"][0]
    assert (lost["verdict"], lost["total_ms"]) == ("above", pytest.approx(1.6))
    assert any("processing takes too long" in line for line in view["explanation"])
    (kept,) = distributor.registry.marks.kept.values()
    assert 8_000 <= kept < 16_000


async def test_how_it_ended_and_what_is_full_outlive_the_distributor(distributor, tmp_path, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            await here.start_broker(name)
        await here.submit(count=80)
        view = await here.ended()
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    assert again.registry.marks == distributor.registry.marks
    assert again.registry.fittings == distributor.registry.fittings
    async with live(again) as here:
        assert here.view() == view
    await again.aclose()


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


async def test_without_traffic_the_placement_by_rates_stands_until_messages_come(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name)).traffic.clear()
        await here.submit(count=80)
        await trio.sleep(60)
        assert here.view()["state"] == "waiting"
        assert "no traffic" in here.view()["reason"]
        here.brokers["a"].traffic.add("cars")
        view = await here.ended()
    assert (view["state"], view["brokers"]) == ("fits", 2)


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
        for name in "ab":
            await here.start_broker(name)
        assert here.placed_on() == before
        assert (await here.ended())["state"] == "fits"
    await again.aclose()


async def test_a_broker_that_never_reports_ends_it_and_nobody_is_moved(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name)).silent = True
        await here.submit(count=80)
        before = here.placed_on()
        view = await here.ended()
        assert here.placed_on() == before
    assert view["state"] == "failed"
    assert "has not reported" in view["reason"]


async def test_a_broker_that_falls_silent_is_left_out(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "abc":
            await here.start_broker(name)
        await here.submit(count=80)
        while len(here.placed_on()) < 2:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.2)
        gone = sorted(here.placed_on())[-1]
        here.scopes[gone].cancel()
        view = await here.ended()
        assert (view["state"], view["brokers"]) == ("fits", 2)
        assert gone not in here.placed_on()


async def test_a_topic_that_is_changed_meanwhile_is_fitted_as_it_is_now(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "abc":
            await here.start_broker(name)
        await here.submit(count=80)
        await trio.sleep(1.5)
        await here.submit(count=120)
        view = await here.ended()
        assert (view["state"], view["brokers"]) == ("fits", 3)


async def test_what_was_found_outlives_a_change_of_who_proposes_shares_and_how(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "abc":
            await here.start_broker(name)
        await here.submit(count=120, mode="fitted")
        while not here.view()["rounds"]:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.2)
        await distributor.registry.set_options(
            "cars", lambda old: replace(old, mode="static", adaptation=replace(old.adaptation, dead_band=0.3))
        )
        rounds = [len(here.view()["rounds"])]
        with trio.fail_after(200):
            while here.view()["state"] not in ENDED:
                await trio.sleep(0.2)
                rounds.append(len(here.view()["rounds"]))
        assert (here.view()["state"], rounds) == ("fits", sorted(rounds))
        assert rounds[-1] > rounds[0]


async def test_a_fitting_that_is_begun_again_has_no_shares_to_itself_while_it_waits_for_its_turn(
    distributor, monkeypatch, autojump_clock
):
    release = Claims.release

    def release_to_bikes(self, topic):  # as if others had been waiting for longer
        release(self, topic)
        self.take("bikes", ["a"])

    async with live(distributor) as here:
        (await here.start_broker("a")).traffic |= {"cars", "bikes"}
        await here.submit(count=40, mode="fitted")
        await trio.sleep(0.3)
        await here.submit("bikes", count=5)
        await trio.sleep(0.3)
        assert "cars" in distributor.registry.being_fitted
        with monkeypatch.context() as patched, trio.fail_after(20):
            patched.setattr(Claims, "release", release_to_bikes)
            await distributor.registry.set_options("cars", lambda old: replace(old, split="fitted"))
            while here.view()["state"] != "queued":  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
        assert "cars" not in distributor.registry.being_fitted
        assert (await here.ended())["state"] == "fits"


async def test_a_topic_that_is_removed_meanwhile_is_fitted_no_longer(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=80)
        await trio.sleep(0.5)
        await distributor.registry.remove("cars", purge=False)
        here.fittings.cancel("cars")
        await trio.sleep(5)
        assert distributor.registry.fittings == {}
        assert distributor.registry.being_fitted == set()
        assert here.syncing is not None
        assert (await here.brokers["a"].sync()).measurements == []


async def test_a_topic_that_is_removed_while_its_fitting_waits_for_its_turn_ends_it(distributor, autojump_clock):
    async with live(distributor) as here:
        (await here.start_broker("a")).traffic |= {"cars", "bikes"}
        await here.submit(count=40)
        await trio.sleep(0.3)
        await here.submit("bikes", count=5)
        await trio.sleep(0.3)
        assert here.view("bikes")["state"] == "queued"
        await distributor.registry.remove("bikes", purge=False)
        assert (await here.ended())["state"] == "fits"
        await trio.sleep(1)
        assert distributor.registry.being_fitted == set()


async def test_a_topic_that_is_removed_just_as_news_wake_its_fitting_ends_it(distributor, monkeypatch, autojump_clock):
    apply = distributor.store.apply

    async def apply_as_news_come(changes: object) -> None:
        await apply(changes)
        here.syncing.news.set()  # the task that waits for news is woken, and runs once the topic has gone

    async with live(distributor) as here:
        (await here.start_broker("a")).traffic.clear()
        await here.submit(count=40)
        await trio.sleep(5.3)
        assert here.view()["state"] == "waiting"
        monkeypatch.setattr(distributor.store, "apply", apply_as_news_come)
        await distributor.registry.remove("cars", purge=False)
        await trio.sleep(5)
        assert distributor.registry.being_fitted == set()
        assert not here.fittings.is_fitting("cars")


async def test_a_defect_ends_the_fitting_that_meets_it_and_not_the_leader(distributor, monkeypatch, autojump_clock):
    def defective(*_given: object) -> float:
        raise KeyError("a defect")

    async with live(distributor) as here:
        (await here.start_broker("a")).traffic |= {"cars", "bikes"}
        with monkeypatch.context() as patched:
            patched.setattr(FittingRun, "_undeclared", defective)
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
        for name in "ab":
            await here.start_broker(name)
        await here.submit(count=80)
        await trio.sleep(0.5)
        monkeypatch.setattr(distributor.store, "apply", refuse)
        await trio.sleep(10)
        assert len(here.placed_on()) == 1
        monkeypatch.setattr(distributor.store, "apply", apply)
        assert (await here.ended())["state"] == "fits"


async def test_fittings_that_share_a_broker_take_turns(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name)).traffic |= {"cars", "bikes"}
        await here.submit(count=40)
        await trio.sleep(0.3)
        await here.submit("bikes", count=5, placement="lb")
        await trio.sleep(0.3)
        assert (here.view()["state"], here.view("bikes")["state"]) == ("running", "queued")
        assert (await here.ended())["state"] == "fits"
        assert (await here.ended("bikes"))["state"] == "fits"


async def test_beside_another_topic_publishers_are_let_in_step_by_step(distributor, autojump_clock):
    async with live(distributor) as here:
        (await here.start_broker("a")).traffic |= {"cars", "bikes"}
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
        for name in "ab":
            (await here.start_broker(name)).traffic |= {"cars", "bikes"}
        await here.submit(count=10)
        await here.ended()
        home = next(iter(here.placed_on()))
        here.brokers[home].broken.add("cars")
        await here.submit("bikes", count=30, seed=1)
        view = await here.ended("bikes")
        if view["state"] == "fits":
            assert home not in here.placed_on("bikes")
        else:
            assert view["missing"] is not None


async def test_whoever_an_aborted_fitting_took_off_a_broker_is_not_put_back_by_rates(distributor, autojump_clock):
    async with live(distributor) as here:
        (await here.start_broker("a")).traffic |= {"cars", "bikes"}
        await here.submit(count=10)
        await here.ended()
        here.brokers["a"].broken.add("cars")
        await here.submit("bikes", count=30)
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
        (await here.start_broker("a")).traffic |= {"cars", "bikes"}
        await here.submit(count=10)
        await here.ended()
        here.brokers["a"].broken.add("cars")
        await here.submit("bikes", count=30)
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
        for name in "ab":
            (await here.start_broker(name)).traffic |= {"cars", "bikes"}
        await here.submit(count=40, placement="lb")
        await here.ended()
        here.brokers["a"].broken.add("cars")
        here.brokers["b"].silent = True
        await here.submit("bikes", count=30, placement="lb")
        assert (await here.ended("bikes"))["state"] == "failed"
        await trio.sleep(30)
        assert here.placed_on("bikes") == {"b"}


async def test_what_is_found_full_is_stored_while_the_fitting_runs_and_stays_so_as_it_takes_publishers_off(
    distributor, autojump_clock
):
    async with live(distributor) as here:
        for name in "ab":
            (await here.start_broker(name)).traffic |= {"cars", "bikes"}
        await here.submit(count=40, placement="lb")
        await here.ended()
        here.brokers["a"].broken.add("cars")
        await here.submit("bikes", count=30, placement="lb")
        marked = []
        while here.view("bikes")["state"] not in ENDED:
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
        for name in "ab":
            (await here.start_broker(name)).traffic |= {"cars", "bikes"}
        await here.submit(count=40, placement="lb")
        await here.ended()
        here.brokers["a"].broken.add("cars")
        await here.submit("bikes", count=30, placement="lb")
        await here.ended("bikes")
        assert refused
        assert set(distributor.registry.marks.brokers) == {"a", "b"}


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
        intended = here.fittings.intended(FittingOptions(method="paper", rounds_s=10))
        await distributor.registry.submit(spec(count=40, rate=200.0), fitting=intended)
        here.nursery.cancel_scope.cancel()  # before it has heard of it
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again) as here:
        await here.start_broker("a")
        view = await here.ended()
        assert (view["state"], view["method"], view["rounds_s"]) == ("fits", "paper", 10)
    await again.aclose()


@pytest.mark.parametrize("method", ["off", "paper"])
async def test_a_topic_is_fitted_as_was_asked_also_when_its_publishers_change(distributor, method, autojump_clock):
    async with live(distributor, default=SEQUENTIAL) as here:
        await here.start_broker("a")
        await here.submit(count=10, options=FittingOptions(method=method, rounds_s=10))
        await here.ended()
        await here.submit(count=20, options=None)
        assert (await here.ended())["method"] == method


async def test_a_distributor_that_fits_nothing_by_itself_forgets_no_topics_way(distributor, tmp_path, autojump_clock):
    async with live(distributor, default=OFF) as here:
        await here.start_broker("a")
        await here.submit(count=10, options=FittingOptions(method="paper", rounds_s=10))
        await here.ended()
        await here.submit(count=20, options=None)
        assert here.view()["state"] == "off"
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    async with live(again, default=SEQUENTIAL) as here:
        await here.start_broker("a")
        await here.submit(count=30, options=None)
        assert (await here.ended())["method"] == "paper"
    await again.aclose()


async def test_off_is_off_and_the_same_topic_again_is_not_fitted_anew(distributor, autojump_clock):
    async with live(distributor) as here:
        await here.start_broker("a")
        await here.submit(count=40, options=OFF)
        assert here.view()["state"] == "off"
        topic = distributor.registry.topic("cars")
        await here.fittings.submitted(topic, topic, None)
        assert here.view()["state"] == "off"
        await here.fittings.submitted(topic, topic, SEQUENTIAL)
        assert (await here.ended())["state"] == "fits"


async def test_the_papers_fitting_runs_by_its_rounds(distributor, autojump_clock):
    async with live(distributor) as here:
        for name in "ab":
            await here.start_broker(name)
        await here.submit(count=80, options=FittingOptions(method="paper", rounds_s=10))
        view = await here.ended(within_s=600)
    assert (view["state"], view["method"], view["rounds_s"]) == ("fits", "paper", 10)
    assert view["took_s"] >= 30
    assert all(one["took_s"] >= 10 for one in view["rounds"])
