from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.experiments.steps.run import MODES, STEPS, Judgement, Sent, Step, counted_s, judged, why_not
from bench.experiments.steps.traffic import step_plans, topic_document
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.harness.cluster_runs.trace import Trace
from srtm.topics.spec import parse_topic_json


@pytest.mark.parametrize("step", STEPS.values())
def test_who_stays_leaves_and_comes_makes_the_parts_before_and_after(step: Step) -> None:
    plans = step_plans("cars", ["127.0.0.1:1", "127.0.0.1:2"], step, 10.0, 20.0, 1000)
    stay, leave, come = (Counter(plan.publishers.target) for plan in (plans.stay, plans.leave, plans.come))
    assert stay[0] + leave[0] == round(1000 * step.before)
    assert stay[0] + come[0] == round(1000 * step.after)
    assert stay.total() + leave.total() == stay.total() + come.total() == 1000
    ids = [*plans.stay.publishers.ids, *plans.leave.publishers.ids, *plans.come.publishers.ids]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("mode", MODES)
def test_the_topic_is_a_valid_one_that_names_none_of_them(mode: str) -> None:
    spec = parse_topic_json(topic_document("cars", 0.9, 1, mode))
    assert spec.mode == mode.partition(",")[0]
    assert spec.publishers.ids == ("first", "second")
    assert spec.publishers.rates.tolist() == pytest.approx([9_000.0, 1_000.0])


def found(late_from_s: float, until_s: float, *, calm_until_s: float = 10.0, before_s: float = 3.0) -> Judgement:
    """Of a message every 10 ms for 20 s, late by 1 ms, and held from the one second to the other; the step is at
    10 s."""
    arrival: Ints = np.arange(0, 20 * SECOND_NS, SECOND_NS // 100)
    held = (arrival >= late_from_s * SECOND_NS) & (arrival < until_s * SECOND_NS)
    due = np.where(held, round(until_s * SECOND_NS), arrival + 1_000_000)
    sent = Sent(round(calm_until_s * SECOND_NS), 10 * SECOND_NS, 20 * SECOND_NS, 0.1)
    return judged([Trace(["a"], np.zeros_like(arrival), arrival, due, due, due)], sent, before_s)


def test_a_run_is_judged_by_what_the_brokers_recorded() -> None:
    run = found(10.0, 11.0)
    assert run.drained_s == pytest.approx(1.0, abs=0.02)
    assert run.back_s == pytest.approx(2.0, abs=0.11)
    assert (run.before_p99_ms, run.worst_p99_ms, run.messages) == (1.0, 1.0, 2000)


def test_how_a_topic_starts_is_no_part_of_what_was_before_the_step() -> None:
    assert found(0.0, 1.5).before_p99_ms == 1.0


def test_what_wanders_with_a_window_is_compared_with_all_of_it() -> None:
    assert found(4.0, 4.5, before_s=counted_s("fitted")).before_p99_ms == 1.0
    assert found(4.0, 4.5, before_s=counted_s("proportional")).before_p99_ms > 400


def test_a_run_of_which_the_start_lasts_until_the_step_does_not_count() -> None:
    seen = found(6.0, 7.5)
    assert why_not("fitted", 1, seen.before_p99_ms, 0.1) == ["p99 before the step 490 ms, over 10 ms: not settled"]


def test_what_those_who_come_do_before_the_others_have_left_is_not_before_the_step() -> None:
    assert found(9.8, 10.5).before_p99_ms > 100
    assert found(9.8, 10.5, calm_until_s=9.8).before_p99_ms == 1.0


def test_what_still_waits_at_the_end_is_due_never() -> None:
    arrival: Ints = np.arange(0, 20 * SECOND_NS, SECOND_NS // 100)
    due = np.where(arrival < 10 * SECOND_NS, arrival, 0)
    sent = Sent(10 * SECOND_NS, 10 * SECOND_NS, 20 * SECOND_NS, 0.1)
    run = judged([Trace(["a"], np.zeros_like(arrival), arrival, due, due, due)], sent, before_s=3.0)
    assert (run.drained_s, run.back_s) == (None, None)


def test_a_run_with_generators_that_are_late_by_a_fifth_of_what_is_measured_does_not_count() -> None:
    assert why_not("static", 1, 2.0, 1.0) == []
    assert why_not("static", 1, 2.0, 1.5) == ["the generators' p99 lateness 1.5 ms, over 1 ms"]
    assert why_not("static", 10, 20.0, 4.0) == []
    assert why_not("static", 10, 20.0, 4.1) == ["the generators' p99 lateness 4.1 ms, over 4 ms"]


def test_what_is_a_settled_p99_goes_with_mode_and_batch() -> None:
    assert why_not("proportional", 1, 20.0, 0.1) == []
    assert why_not("fitted", 10, 33.0, 0.1) == []
    assert why_not("fitted", 1, 20.0, 0.1) == ["p99 before the step 20 ms, over 10 ms: not settled"]


def test_under_central_nothing_has_to_be_settled_but_the_generators_on_time() -> None:
    assert why_not("central", 1, 3_000.0, 0.1) == []
    assert why_not("central", 1, 3_000.0, 1.1) == ["the generators' p99 lateness 1.1 ms, over 1 ms"]
