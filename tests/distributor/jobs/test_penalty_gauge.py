"""The gauge of the DRL penalty: who has one, what it asks of brokers, what it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import httpx
import numpy as np
import pytest
import trio

from distributor.api.app import make_app
from distributor.fitting.events import Event, Progress, Recorded
from distributor.jobs import penalty_gauge as penalties
from distributor.jobs.penalty_gauge import PERIOD_S, PenaltyGauge, window_s
from distributor.model.cluster import Placement, Topic
from distributor.model.leases import Amount, Leases
from distributor.prediction.replay import Trace
from distributor.prediction.sequential_test import Intervals
from distributor.views.metrics import exposition
from distributor.views.topic_view import topic_view
from srtm.control import MeasurementRequest
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec

NONE = np.zeros(0, dtype=np.int64)
EMPTY = Intervals(at=NONE, count=NONE, late=NONE, latency_ns=NONE)


class Brokers:
    """They measure for as long as they are asked to, unless they are ``silent``, and record a burst each, at once."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.asked: list[tuple[str, MeasurementRequest]] = []
        self.stopped: list[tuple[str, bool]] = []
        self.silent: set[str] = set()
        self.on_begin: Callable[[], None] = lambda: None
        self._nursery = nursery
        self._tell: dict[tuple[str, str], Callable[[Event], None]] = {}

    def begin(
        self,
        broker: str,
        _incarnation: str,
        request: MeasurementRequest,
        _round: int,
        positions: Mapping[str, int],
        tell: Callable[[Event], None],
    ) -> None:
        self.asked.append((broker, request))
        self._tell[broker, request.id] = tell
        assert positions.get("a stranger", -1) == 0  # whose messages count, too
        self.on_begin()
        if broker not in self.silent:
            self._nursery.start_soon(self._measure, broker, request)

    async def _measure(self, broker: str, request: MeasurementRequest) -> None:
        await trio.sleep(request.at_most_ns / 1e9)
        self._tell[broker, request.id](Progress(broker=broker, round=1, intervals=EMPTY, final=True))

    def stop(self, broker: str, id_: str, *, trace_wanted: bool) -> None:
        self.stopped.append((broker, trace_wanted))
        if trace_wanted:
            arrival_ns = np.concatenate([np.zeros(20, dtype=np.int64), [1_000_000_000]])
            trace = Trace(publisher=np.zeros_like(arrival_ns), arrival_ns=arrival_ns, service_ns=arrival_ns * 0)
            self._tell[broker, id_](Recorded(broker=broker, round=1, trace=trace))


async def placed(distributor: Distributor, **changes: object) -> list[FakeBroker]:
    brokers = await distributor.brokers("a", "b")
    await distributor.submit(spec(**changes))
    await settle(*brokers)
    return brokers


async def gauged(
    distributor: Distributor, seconds: float, silent: set[str] | None = None, wall_ns: int = 10**9
) -> Brokers:
    """The gauge, run for so long."""
    async with trio.open_nursery() as nursery:
        played = Brokers(nursery)
        played.silent = silent or set()
        gauge = PenaltyGauge(distributor.registry, distributor.syncing, played, wall_ns=lambda: wall_ns)
        nursery.start_soon(gauge.run)
        for broker in ("a", "b"):
            distributor.registry.liveness.hear(broker, 10 * seconds)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return played


async def test_a_topic_on_two_brokers_is_recorded_on_both_at_once_and_its_penalty_shown(
    distributor, autojump_clock, no_threads
):
    await placed(distributor)
    played = await gauged(distributor, 20.0)
    assert [broker for broker, _ in played.asked] == ["a", "b"]
    (request, other) = (one for _, one in played.asked)
    assert (request.id, request.topic, request.at_most_ns) == (other.id, "cars", 10_000_000_000)
    assert request.share_version == distributor.registry.topic("cars").holding("a").version
    found = distributor.syncing.penalties["cars"].penalty
    # b is 30 in one bucket of 1,100 msg/s, 15 in each share of 550: of 40 at once 10 wait, of 20 twice 5.
    assert found.messages == 42
    one_ms = sum(range(1, 11)) * 1e3 / 1100
    split_ms = 2 * sum(range(1, 6)) * 1e3 / 550
    assert found.sum_ms == pytest.approx(split_ms - one_ms, rel=1e-3)
    view = topic_view(distributor.registry.topic("cars"), distributor.registry, distributor.syncing)
    assert view.drl_penalty is not None
    assert view.drl_penalty.at == "1970-01-01T00:00:01Z"
    assert view.drl_penalty.mean_ms == found.mean_ms
    text = b"".join(exposition(distributor.registry, distributor.syncing)).decode()
    assert f'srtm_topic_drl_penalty_seconds{{topic="cars"}} {found.mean_ms / 1e3}' in text
    assert 'srtm_topic_drl_penalty_p99_seconds{topic="cars"}' in text


async def test_it_is_worked_out_again_every_period(distributor, autojump_clock, no_threads):
    await placed(distributor)
    played = await gauged(distributor, 2 * PERIOD_S + 15.0)
    assert len({request.id for _, request in played.asked}) == 3


async def test_what_the_next_leader_asks_is_never_taken_for_what_the_last_one_asked(
    distributor, autojump_clock, no_threads
):
    await placed(distributor)
    asked = [await gauged(distributor, 5.0, wall_ns=at) for at in (10**18, 10**18 + 1)]
    assert len({request.id for played in asked for _, request in played.asked}) == 2


async def test_a_topic_on_one_broker_has_none(distributor, autojump_clock, no_threads):
    await distributor.brokers("a", mcap=2000)
    await distributor.submit(spec())
    played = await gauged(distributor, 15.0)
    assert played.asked == []
    assert distributor.syncing.penalties == {}


async def test_shares_that_are_on_their_way_are_waited_for(distributor, autojump_clock, no_threads):
    await distributor.brokers("a", "b")
    await distributor.submit(spec())  # nobody has acknowledged anything
    assert (await gauged(distributor, 15.0)).asked == []


async def test_without_an_answer_of_all_there_is_no_penalty_and_nothing_goes_on_measuring(
    distributor, autojump_clock, no_threads
):
    await placed(distributor)
    await gauged(distributor, 20.0)
    assert "cars" in distributor.syncing.penalties
    played = await gauged(distributor, 20.0, silent={"b"})
    assert "cars" not in distributor.syncing.penalties
    assert ("b", False) in played.stopped


async def test_a_window_in_which_shares_changed_does_not_count(distributor, autojump_clock, no_threads):
    brokers = await placed(distributor)
    async with trio.open_nursery() as nursery:
        played = Brokers(nursery)
        gauge = PenaltyGauge(distributor.registry, distributor.syncing, played)
        nursery.start_soon(gauge.run)
        await trio.sleep(1.0)
        await distributor.submit(spec(rate=1200.0))
        await settle(*brokers)
        await trio.sleep(15.0)
        nursery.cancel_scope.cancel()
    assert len(played.asked) == 2
    assert distributor.syncing.penalties == {}


async def test_a_topic_that_is_made_again_does_not_inherit_the_penalty_of_the_removed_one(
    distributor, autojump_clock, no_threads
):
    await placed(distributor)
    await gauged(distributor, 20.0)
    assert "cars" in distributor.syncing.penalties
    transport = httpx.ASGITransport(make_app(distributor.registry, distributor.syncing))
    async with httpx.AsyncClient(transport=transport, base_url="http://d") as client:
        assert (await client.delete("/v1/topics/cars")).status_code == 204
    assert distributor.syncing.penalties == {}


async def gauged_beside_bikes(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch, seconds: float, befalls: Callable[[], None]
) -> None:
    """Both topics; ``befalls`` happens as cars are gauged."""
    brokers = await placed(distributor)
    await distributor.submit(spec("bikes", count=10, placement="lb"))
    await settle(*brokers)
    window = penalties.window_s

    def upset(topic: Topic) -> float | None:
        if topic.name == "cars":
            befalls()
        return window(topic)

    monkeypatch.setattr(penalties, "window_s", upset)
    await gauged(distributor, seconds)


async def test_a_topic_that_cannot_be_gauged_for_a_defect_leaves_the_others_theirs(
    distributor, monkeypatch, autojump_clock, no_threads
):
    def defect() -> None:
        raise KeyError("a defect")

    await gauged_beside_bikes(distributor, monkeypatch, 20.0, defect)
    assert distributor.syncing.penalties.keys() == {"bikes"}


async def test_a_topic_that_is_forgotten_while_it_is_gauged_leaves_the_others_theirs(
    distributor, monkeypatch, autojump_clock, no_threads, capsys
):
    def forgotten() -> None:
        distributor.registry.state.table.forget(["cars"])

    await gauged_beside_bikes(distributor, monkeypatch, 30.0, forgotten)
    assert distributor.syncing.penalties.keys() == {"bikes"}
    assert "ERROR" not in capsys.readouterr().err


def topic(load: float) -> Topic:
    """On two brokers."""
    made = spec(count=10, rate=load / 10)
    half = Amount(round(made.rate * 5e5), 15_000_000)
    leases = Leases(Amount(round(made.rate * 1e6), 30_000_000), target={"a": half, "b": half})
    placement = Placement(publishers=made.publishers, brokers=("a", "b"), at=np.arange(10) % 2)
    return Topic(spec=made, version=1, placement=placement, assignment_version=1, leases=leases)


def test_much_traffic_has_a_shorter_window_and_too_much_has_none():
    assert window_s(topic(1_000.0)) == 10.0
    assert window_s(topic(20_000.0)) == 2.5
    assert window_s(topic(60_000.0)) is None
    assert window_s(replace(topic(1_000.0), removed=True)) is None
