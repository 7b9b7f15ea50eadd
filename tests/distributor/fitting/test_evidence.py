"""What a search knows, and which layout it says to try next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distributor.fitting.events import Begin, Layout, Missing, Outcome
from distributor.fitting.evidence import Evidence, NoneLeft, Over
from distributor.fitting.layout_model import Recording, recording
from distributor.fitting.search import proportional
from distributor.fitting.transitions import Rules
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Latency, Trace
from tests.support.layout_loops import MS, ON_BREACH, SECOND, laid_out, small_task, two_empty

ALWAYS = Rules(always=True)
TASK = small_task()
ALL_ON_B0 = laid_out(TASK, {"b0": range(40)})
LATE = {"b0": Latency(access_ns=0, processing_ns=2 * MS, total_ns=2 * MS)}


def evidence(rules: Rules = ON_BREACH, brokers: list[BrokerCapacity] | None = None) -> Evidence:
    begin = Begin(task=TASK, brokers=two_empty() if brokers is None else brokers, split=proportional)
    return Evidence(rules, begin)


def together(service_ns: int, times: int = 20) -> Recording:
    """All 40 once a second, at b0."""
    trace = Trace(
        publisher=np.tile(np.arange(40), times),
        arrival_ns=np.repeat(np.arange(times) * SECOND, 40),
        service_ns=np.full(40 * times, service_ns, dtype=np.int64),
    )
    made = recording({"b0": trace})
    assert made is not None
    return made


def test_before_anything_was_recorded_brokers_that_came_end_a_search_and_always_tries_them() -> None:
    assert evidence().next_layout(ALL_ON_B0) == Over(outcome=Outcome.BROKERS_CAME)
    tried = evidence(ALWAYS).next_layout(ALL_ON_B0)
    assert isinstance(tried, Layout)
    assert sum(tried.placement >= 0) == 40


def test_a_layout_that_is_late_for_its_processing_gives_publishers_to_another_broker() -> None:
    known = evidence()
    known.learn(ALL_ON_B0, LATE, together(40_000), {"b0"})  # 40 of 40 us: 1.6 ms
    found = known.next_layout(ALL_ON_B0)
    assert isinstance(found, Layout)
    heads = dict(zip(found.brokers, np.bincount(found.placement).tolist(), strict=True))
    assert heads["b0"] <= 24, "1 ms"
    assert sum(heads.values()) == 40


def test_where_nobody_may_move_it_says_who_would() -> None:
    known = evidence(Rules(may_move=False))
    known.learn(ALL_ON_B0, LATE, together(40_000), {"b0"})
    said = known.next_layout(ALL_ON_B0)
    assert isinstance(said, Over)
    assert said.outcome is Outcome.NO_MOVES
    assert said.reason.endswith("publishers would move, to b0, b1")


def test_where_no_layout_is_better_by_the_margin_and_what_arrives_is_in_time_that_is_said() -> None:
    known = evidence(Rules(margin=0.99))
    known.learn(ALL_ON_B0, LATE, together(1_000), {"b0"})
    said = known.next_layout(ALL_ON_B0)
    assert isinstance(said, Over)
    assert said.outcome is Outcome.NO_BETTER
    assert said.reason == "what arrives now would be in time under the layout in force"


def test_after_four_layouts_none_is_tried() -> None:
    known = evidence(ALWAYS)
    known.learn(ALL_ON_B0, LATE, together(40_000), {"b0"})
    known.tried = 4
    assert known.next_layout(ALL_ON_B0) == NoneLeft(missing=None)


def test_without_room_by_rates_brokers_are_missing() -> None:
    said = evidence(ALWAYS, [BrokerCapacity(name="b0", mcap=30.0)]).next_layout(ALL_ON_B0)
    assert said == NoneLeft(missing=Missing(brokers=1))


def test_a_broker_that_is_too_slow_keeps_what_it_can_process_and_one_that_only_waited_is_not_full() -> None:
    known = evidence()
    known.learn(ALL_ON_B0, LATE, together(40_000), {"b0"})
    kept = known.all_full(laid_out(TASK, {"b1": range(40)}))["b0"]
    assert 20 <= kept <= 24, "24 of 40 us take 0.96 ms"
    other = evidence()
    other.learn(ALL_ON_B0, LATE, together(40_000), set())
    assert other.all_full(ALL_ON_B0) == {}, "it was not late"


def test_a_layout_may_be_where_its_brokers_are_and_none_gets_too_much() -> None:
    known = evidence()
    assert known.may_be(ALL_ON_B0)
    assert not known.may_be(laid_out(TASK, {"gone": range(40)}))
    known.task = replace(TASK, full={"b0": 39.0})
    assert not known.may_be(ALL_ON_B0)
