"""What ``srtm bench overhead`` sends, and how it judges what it saw."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import pytest
import trio
import trio.testing

from bench.experiments.overhead.counters import KINDS, Counts, counts_of
from bench.experiments.overhead.run_all import in_order, judged, markdown, said_of_changes, said_of_histories
from bench.experiments.overhead.traffic import (
    BROKERS,
    LOAD,
    STEADY_LOADS,
    part_of_traffic,
    play,
    steady_load,
    steady_traffic,
    topic_document,
)
from bench.experiments.overhead.turn import SHIFTING, STEADY, Turn
from bench.harness.load.run import RunProgress
from srtm.topics.spec import parse_topic_json

CORES = 2
STATIC = Turn(
    scenario=STEADY,
    mode="static",
    number=0,
    adaptor=1.0,
    distributor=60.0,
    brokers=70.0,
    engines=100.0,
    changes=0.0,
    histories=dict.fromkeys(KINDS, 0.0),
    bins=dict.fromkeys(KINDS, 0.0),
    sent=60_000,
    planned=60_000,
)
FITTED = replace(STATIC, mode="fitted", adaptor=3.0, distributor=63.0, brokers=72.0, engines=101.0)
SHIFTED = [
    replace(STATIC, scenario=SHIFTING),
    replace(STATIC, scenario=SHIFTING, mode="fitted", distributor=160.0, engines=120.0, changes=10.0),
]


def test_what_fitted_takes_more_than_static_of_steady_traffic_must_be_below_one_percent_of_the_cores() -> None:
    assert judged([STATIC, FITTED, *SHIFTED], CORES).reached
    assert not judged([STATIC, replace(FITTED, engines=112.0), *SHIFTED], CORES - 1).reached
    dear = judged([STATIC, replace(FITTED, engines=113.0), *SHIFTED], CORES)
    assert "20.0 ms/s (1.00 % of 2 cores), must be below 20 ms/s (1 %)" in dear.line


def test_modes_take_turns_so_that_each_comes_as_late_as_the_other() -> None:
    assert in_order(2) == [(0, "static"), (0, "fitted"), (1, "fitted"), (1, "static")]
    assert sorted(in_order(1)) == [(0, "fitted"), (0, "static")]


def test_turns_without_any_change_of_shares_prove_nothing() -> None:
    assert not judged([STATIC, FITTED, SHIFTED[0], replace(SHIFTED[1], changes=0.0)], CORES).reached


@pytest.mark.parametrize(("planned", "enough"), [(60_000, 58_666), (7_500, 7_166)])
def test_a_turn_that_sent_less_than_planned_does_not_count(planned: int, enough: int) -> None:
    """99 % of the plan, less three standard deviations."""
    assert judged([STATIC, replace(FITTED, planned=planned, sent=enough), *SHIFTED], CORES).reached
    verdict = judged([STATIC, replace(FITTED, planned=planned, sent=enough - 1), *SHIFTED], CORES)
    assert not verdict.valid
    assert f"steady, fitted, turn 0: sent {enough - 1:,} of {planned:,}" in verdict.line


CONNECTING_S = 0.5


class Generator:
    """One that sends a hundred messages a second, if it is not deaf, once it has connected."""

    stopped = 0

    def __init__(self, plan: bytes) -> None:
        self.rate = 0 if json.loads(plan)["topic"] == "deaf" else 100
        self.started_s = math.inf

    def start(self) -> None:
        self.started_s = trio.current_time()

    def progress(self) -> bytes:
        elapsed_s = max(0.0, trio.current_time() - self.started_s - CONNECTING_S)
        sent = round(self.rate * elapsed_s)
        progress = RunProgress(
            phase="measuring",
            elapsed_s=elapsed_s,
            offered=sent,
            sent=sent,
            refused=0,
            received=0,
            lateness_p99_ms=0.0,
            p99_ms=0.0,
        )
        return msgspec.json.encode(progress)

    def stop(self) -> None:
        Generator.stopped += 1


async def test_what_was_sent_is_what_the_generators_say_before_they_are_stopped_of_the_time_in_which_they_send(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr("bench.harness.load.run.LoadGen", Generator)
    monkeypatch.setattr(Generator, "stopped", 0)
    plans = [part_of_traffic(topic, 0, ["127.0.0.1:1"], 5.0, 1) for topic in ("cars", "bikes", "deaf")]
    assert await play(plans, trio.current_time() + 5.0 + CONNECTING_S) == (1_000, 1_500.0)
    assert Generator.stopped == 3


def test_the_table_has_both_modes_of_both_kinds_of_traffic_and_the_difference() -> None:
    rows = markdown([STATIC, FITTED, *SHIFTED]).splitlines()
    assert rows[2] == "| steady | static | 1.0 | 60.0 | 70.0 | 100.0 | 131.0 | 231.0 | 0.0 |"
    assert rows[4] == "| steady | more under fitted | 2.0 | 3.0 | 2.0 | 1.0 | 7.0 | 8.0 |  |"
    assert rows[6].startswith("| shifting | fitted | 1.0 | 160.0 |")


def test_where_traffic_shifts_what_is_spent_more_is_told_by_the_change() -> None:
    assert "distributor 10.0, brokers 0.0, engines 2.0, control 10.0, total 12.0" in said_of_changes(SHIFTED)


def test_histories_are_told_by_their_kind() -> None:
    turn = replace(FITTED, histories={"change": 0.5, "moving": 2.0, "steady": 3.0}, bins=dict.fromkeys(KINDS, 40.0))
    said = said_of_histories([STATIC, turn])
    assert said.endswith("a second: steady change 0.5 (40), moving 2.0 (40), steady 3.0 (40).")


def test_what_a_distributor_counts_is_read_from_its_metrics_and_told_by_the_second() -> None:
    text = """# TYPE srtm_share_changes_total counter
srtm_share_changes_total{topic="a"} 4.0
srtm_share_changes_total{topic="b"} 6.0
srtm_share_rate{topic="a",broker="b0"} 5.5
# TYPE srtm_histories_taken_total counter
srtm_histories_taken_total{kind="steady"} 30.0
# TYPE srtm_history_bins_total counter
srtm_history_bins_total{kind="steady"} 300.0
"""
    before = Counts(changes=5.0, histories={**dict.fromkeys(KINDS, 0.0), "steady": 10.0}, bins=dict.fromkeys(KINDS, 0))
    since = counts_of(text).since(before, 2.0)
    assert (since.changes, since.histories["steady"], since.histories["change"]) == (2.5, 10.0, 0.0)
    assert since.bins == {"change": 0.0, "moving": 0.0, "steady": 150.0}


def test_a_topic_declares_as_much_for_each_broker_and_its_traffic_is_on_one() -> None:
    spec = parse_topic_json(topic_document("cars", LOAD))
    assert len(spec.publishers.ids) == BROKERS
    assert spec.publishers.rates.sum() == pytest.approx(LOAD)
    plan = part_of_traffic("cars", 2, [f"127.0.0.1:{4150 + at}" for at in range(BROKERS)], 5.0, 1)
    assert plan.targets == ["127.0.0.1:4152"]
    assert sum(plan.publishers.rate) == pytest.approx(LOAD)


def test_steady_traffic_is_sent_by_the_declared_publishers_where_they_belong() -> None:
    loads = {name: steady_load(number) for number, name in enumerate(("cars", "bikes"))}
    homes = {name: {f"{name}-{at}": f"127.0.0.1:{4150 + at}" for at in range(BROKERS)} for name in loads}
    plan = steady_traffic(homes, loads, 60.0, 1)
    of_bikes = [at for at, topic in enumerate(plan.topics) if topic == "bikes"]
    assert [plan.publishers.ids[at] for at in of_bikes] == list(homes["bikes"])
    assert [plan.targets[plan.publishers.target[at]] for at in of_bikes] == list(homes["bikes"].values())
    assert sum(plan.publishers.rate[at] for at in of_bikes) == pytest.approx(STEADY_LOADS[1])
    assert [one.target for one in plan.subscribers] == list(range(len(plan.targets)))
