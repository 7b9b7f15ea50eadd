"""Relief on a cluster of simulated brokers: what they report leads to moves, decisions and figures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio
import trio.testing

from distributor.jobs.relief import Rates, ReliefJob, part
from distributor.relief.values import Note, Shift, Step
from distributor.views import metrics
from distributor.views import topic_view as views
from srtm.control import LatencyMs, TopicLatency, TopicReport
from srtm.errors import BadInput, Conflict, Unavailable
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec

pytestmark = pytest.mark.usefixtures("no_threads")


def late(processing_ms: float = 0.1, access_ms: float = 0.0, count: int = 5000) -> TopicLatency:
    def all_at(value: float) -> LatencyMs:
        return LatencyMs(count=count, p50_ms=value, p95_ms=value, p99_ms=value, p999_ms=value, max_ms=value)

    total = all_at(processing_ms + access_ms)
    return TopicLatency(access=all_at(access_ms), processing=all_at(processing_ms), total=total)


class Cluster:
    """Time passes second by second: brokers report what the test says, then relief looks."""

    def __init__(self, distributor: Distributor, *brokers: FakeBroker) -> None:
        self.fitting: set[str] = set()
        self.latency = dict.fromkeys([broker.name for broker in brokers], late())
        self.registry = distributor.registry
        self.syncing = distributor.syncing
        self.relieving = ReliefJob(distributor.registry, distributor.syncing, self.fitting.__contains__)
        self._brokers = brokers
        self._released = dict.fromkeys(self.latency, 0)

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            await trio.sleep(1)
            for broker in self._brokers:
                self._released[broker.name] += round(self.assigned().get(broker.name, 0.0))
                broker.reports = [
                    TopicReport(
                        topic="cars",
                        share_version=1,
                        received=1,
                        released=self._released[broker.name],
                        recent=self.latency[broker.name],
                    )
                ]
            await settle(*self._brokers)
            await self.relieving.look()

    def assigned(self) -> dict[str, float]:
        return self.registry.topic("cars").placement.assigned

    def decisions(self) -> list[str]:
        return [entry.lines[0] for entry in self.registry.decisions["cars"]]


async def on_two(distributor: Distributor, **changes: object) -> Cluster:
    """120 publishers of 10 msg/s on a (900) and b (300); nobody has room for more than 1,000."""
    a, b = await distributor.brokers("a", "b", mcap=1000)
    await distributor.submit(spec(count=120, **changes))
    await settle(a, b)
    topic = distributor.registry.topic("cars")
    on_b = topic.placement.ids_of["b"]
    await distributor.registry.relocate("cars", dict.fromkeys(on_b[: len(on_b) // 2], "a"), "uneven for a reason")
    cluster = Cluster(distributor, a, b)
    await cluster.run(5)
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}
    return cluster


async def test_an_overloaded_broker_gives_up_publishers_and_the_log_and_the_view_say_why(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = await on_two(distributor)
    cluster.latency["a"] = late(processing_ms=8.0)
    await cluster.run(18)
    canary = 2  # of 90
    assert cluster.assigned() == {"a": 900.0 - 10 * canary, "b": 300.0 + 10 * canary}
    why = "a: p99 8 ms (promise 5; access 0, processing 8); 2 publishers (canary) go to b"
    assert why in cluster.decisions()[-2:]
    view = views.topic_view(cluster.registry.topic("cars"), cluster.registry, cluster.syncing)
    assert view.relief == "relieving a: 2 publishers moved to b"
    assert "publishers (canary)" not in view.reason
    await cluster.run(16)  # they have arrived, and were watched
    assert cluster.syncing.relief.moves[Step.REST] > 0
    cluster.latency["a"] = late(processing_ms=2.0)
    await cluster.run(20)
    assert any(line.startswith("a: the promise is kept again") for line in cluster.decisions())
    text, _ = metrics.exposition(cluster.registry, cluster.syncing)
    assert b'srtm_relief_moves_total{step="canary"} 2.0' in text
    assert b'srtm_relief_episodes_total{outcome="relieved"} 1.0' in text


async def test_what_does_not_help_goes_back_and_the_log_says_so(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = await on_two(distributor)
    before = cluster.registry.topic("cars").placement
    cluster.latency["a"] = late(processing_ms=8.0)
    await cluster.run(80)
    after = cluster.registry.topic("cars").placement
    assert [after.broker_of(one) for one in after.publishers.ids] == [
        before.broker_of(one) for one in before.publishers.ids
    ]
    assert any("publishers come back: it did not help" in line for line in cluster.decisions())
    assert cluster.syncing.relief.rolled_back == 1


async def test_a_topic_that_is_being_fitted_is_left_alone(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = await on_two(distributor)
    cluster.fitting.add("cars")
    cluster.latency["a"] = late(processing_ms=8.0)
    await cluster.run(60)
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}


async def test_nobody_goes_to_a_broker_that_drains(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = await on_two(distributor)
    (_, b) = cluster._brokers
    b.accepting = False
    cluster.latency["a"] = late(processing_ms=8.0)
    await cluster.run(40)
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}
    assert "no broker can take publishers off it" in cluster.decisions()[-1]


async def test_a_broker_new_to_the_topic_is_not_given_a_share_that_makes_messages_wait_longer(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec(count=120, burst=4))
    await settle(a, b)
    cluster = Cluster(distributor, a, b)
    await cluster.run(2)
    (only,) = cluster.assigned()
    cluster.latency[only] = late(processing_ms=8.0)
    await cluster.run(60)
    assert cluster.assigned() == {only: 1200.0}
    assert any("which is new to the topic, messages would wait" in line for line in cluster.decisions())


async def test_access_delay_is_told_and_moves_nobody(
    distributor: Distributor, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = await on_two(distributor)
    cluster.latency["a"] = late(access_ms=8.0)
    await cluster.run(60)
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}
    assert "wait for tokens" in cluster.decisions()[-1]


async def test_a_store_that_is_away_moves_nobody_and_it_is_tried_again_after_the_pause(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = await on_two(distributor)
    cluster.latency["a"] = late(processing_ms=8.0)

    async def refuse(changes: object) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(distributor.store, "apply", refuse)
        with pytest.raises(Unavailable, match="the store is away"):
            await cluster.run(40)
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}
    await cluster.run(290)
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}
    await cluster.run(20)
    assert cluster.assigned()["a"] < 900.0


NONSENSE = [
    {"released": 10**400},
    {"released": -1},
    {"share_version": 10**30},
    {"rate": math.nan},
    {"largest_backlog": math.inf},
    {"recent": TopicLatency(total=LatencyMs(count=5, p99_ms=math.inf))},
    {"since_start": TopicLatency(access=LatencyMs(count=10**400))},
]


@pytest.mark.parametrize("figures", NONSENSE, ids=[next(iter(one)) for one in NONSENSE])
async def test_a_report_that_cannot_be_is_ignored_and_counted_and_those_beside_it_are_taken(
    distributor: Distributor, figures: dict[str, object]
) -> None:
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec())
    await settle(a, b)
    relieving = ReliefJob(distributor.registry, distributor.syncing)
    a.reports = [TopicReport(topic="cars", share_version=1), TopicReport(topic="bikes", share_version=1)]
    await a.sync()
    await relieving.look()
    a.reports[0] = TopicReport(**{"topic": "cars", "share_version": 1, **figures})
    await a.sync()
    await relieving.look()
    assert distributor.syncing.reports["a"].keys() == {"bikes"}
    text, _ = metrics.exposition(distributor.registry, distributor.syncing)
    assert b'srtm_reports_ignored{broker="a"} 1.0' in text


async def test_a_shift_of_somebody_who_was_removed_meanwhile_has_failed_and_is_no_defect(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, capsys
) -> None:
    cluster = await on_two(distributor)
    relief, failed = cluster.syncing.relief, []
    shift = Shift(topic="cars", step=Step.CANARY, to={"nobody": "b"}, reason="late")
    monkeypatch.setattr(relief, "look", lambda _now_s, _view: [shift])
    monkeypatch.setattr(relief, "failed", lambda topic, _now_s: failed.append(topic))
    await cluster.relieving.look()
    assert (failed, capsys.readouterr().err) == (["cars"], "")
    assert cluster.assigned() == {"a": 900.0, "b": 300.0}


async def test_a_defect_that_a_shift_meets_is_told_and_fails_that_shift_alone(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, capsys
) -> None:
    cluster = await on_two(distributor)
    relief, failed = cluster.syncing.relief, []

    def defective(*_given: object) -> bool:
        raise KeyError("a defect")

    shift = Shift(topic="cars", step=Step.CANARY, to={"p0": "b"}, reason="late")
    monkeypatch.setattr(relief, "look", lambda _now_s, _view: [shift, Note(topic="cars", text="what came after it")])
    monkeypatch.setattr(relief, "failed", lambda topic, _now_s: failed.append(topic))
    monkeypatch.setattr(cluster.registry, "relocate", defective)
    await cluster.relieving.look()
    assert (failed, cluster.decisions()[-1]) == (["cars"], "what came after it")
    assert "a defect" in capsys.readouterr().err


async def test_a_look_that_meets_a_defect_does_not_end_the_leader(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, capsys
) -> None:
    cluster, looks = await on_two(distributor), []

    def look(now_s: float, _view: object) -> list[Note]:
        looks.append(now_s)
        if len(looks) == 1:
            raise OverflowError("a defect")
        return []

    monkeypatch.setattr(cluster.syncing.relief, "look", look)
    with trio.move_on_after(5):
        await cluster.relieving.run()
    assert len(looks) == 2
    assert "a defect" in capsys.readouterr().err


async def test_where_relief_is_off_nothing_is_looked_at(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    distributor = await Distributor.open(tmp_path / "off.sqlite3", relief=False)
    with trio.fail_after(1):
        await ReliefJob(distributor.registry, distributor.syncing).run()
    await distributor.aclose()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("relief_grace_s", 0.5, "must be 1 to 3600 seconds"),
        ("relief_grace_s", float("nan"), "must be 1 to 3600 seconds"),
        ("relief_moves", 0, "must be 1 to 1,000,000 publishers a minute"),
        ("relief_cool_down_s", -1.0, "must be 0 to 86,400 seconds"),
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused(tmp_path: Path, field: str, value: float, rule: str) -> None:
    with pytest.raises(BadInput) as refused:
        await Distributor.open(tmp_path / "bad.sqlite3", **{field: value})
    assert (refused.value.field, refused.value.rule) == (field, rule)


async def test_publishers_that_are_not_there_any_more_or_a_topic_that_is_gone_are_not_relocated(
    distributor: Distributor,
) -> None:
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec())
    await settle(a, b)
    version = distributor.registry.version
    assert not await distributor.registry.relocate("cars", {"nobody": "b"}, "why")
    assert not await distributor.registry.relocate("cars", {"p0": "c"}, "why")
    assert not await distributor.registry.relocate("trucks", {"p0": "b"}, "why")
    assert distributor.registry.version == version


async def test_nobody_is_placed_on_a_broker_that_another_topic_has_filled_meanwhile(distributor: Distributor) -> None:
    await distributor.brokers("a", mcap=1000)
    await distributor.brokers("b", mcap=600)
    await distributor.submit(spec())
    registry = distributor.registry
    topic, two = registry.topic("cars"), {"p0": "b", "p1": "b"}
    await distributor.submit(spec("trucks", count=59))
    assert (registry.loads["a"].allocated, registry.loads["b"].allocated) == (1000.0, 590.0)
    assert not await registry.relocate("cars", two, "why")
    with pytest.raises(Conflict, match="no room"):
        await registry.arrange("cars", topic.assignment_version, topic.placement.moved(two), "fitting")
    assert registry.topic("cars") is topic
    assert await registry.relocate("cars", {"p0": "b"}, "there is room for one")


def test_rates_come_from_counters_over_the_last_ten_seconds_and_begin_anew_with_a_broker() -> None:
    rates = Rates()

    def at(now_s: float, released: int) -> float:
        return rates.of("a", TopicReport(topic="t", share_version=1, released=released), now_s)

    assert at(0.0, 100) == 0.0
    assert at(1.0, 600) == 500.0
    for second in range(2, 30):
        last = at(float(second), 600 + 100 * second)
    assert last == 100.0
    assert at(30.0, 5) == 0.0


@pytest.mark.parametrize(("percentile", "expected"), [(50, 1.0), (90, 2.0), (95, 2.0), (99, 3.0), (99.9, 4.0)])
def test_a_percentile_that_is_not_reported_is_taken_from_the_next_higher(percentile: float, expected: float) -> None:
    ladder = LatencyMs(count=10, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, p999_ms=4.0)
    report = TopicReport(topic="t", share_version=1, recent=TopicLatency(processing=ladder, total=ladder))
    seen = part(report, percentile, 5.0)
    assert (seen.processing_ms, seen.total_ms, seen.rate, seen.count) == (expected, expected, 5.0, 10)
