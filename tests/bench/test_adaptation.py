from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.aftermath import SECOND_NS
from bench.experiments.adaptation import AdaptationOptions, chosen, is_kept, judged, topic_document
from bench.experiments.adaptation import step_plans as plans_of
from bench.experiments.step_runs import (
    MODES,
    STEPS,
    Step,
    StepRun,
    alike,
    claim,
    file_of,
    keep,
    kept,
    kept_in,
    markdown,
    missed,
)
from bench.trace import Trace
from srtm.errors import BadInput
from srtm.topic import parse_topic_json

RUN = StepRun(
    step=STEPS["50-10"].name,
    mode="fitted",
    number=0,
    drained_s=1.2,
    back_s=2.2,
    worst_p99_ms=2.0,
    before_p99_ms=1.8,
    messages=100,
    before_s=4.0,
    watched_s=10.0,
    seed=1,
    commit="c0ffee",
)


@pytest.mark.parametrize("step", STEPS.values())
def test_who_stays_leaves_and_comes_makes_the_parts_before_and_after(step: Step) -> None:
    plans = plans_of("cars", ["127.0.0.1:1", "127.0.0.1:2"], step, 10.0, 20.0, [1, 0])
    stay, leave, come = (Counter(plan.publishers.target) for plan in (plans.stay, plans.leave, plans.come))
    assert stay[0] + leave[0] == round(1000 * step.before)
    assert stay[0] + come[0] == round(1000 * step.after)
    assert stay.total() + leave.total() == stay.total() + come.total() == 1000
    ids = [*plans.stay.publishers.ids, *plans.leave.publishers.ids, *plans.come.publishers.ids]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("mode", MODES)
def test_the_topic_is_a_valid_one_that_names_none_of_them(mode: str) -> None:
    spec = parse_topic_json(topic_document("cars", STEPS["90-10"], mode))
    assert spec.mode == mode.partition(",")[0]
    assert spec.publishers.ids == ("first", "second")
    assert spec.publishers.rates.tolist() == pytest.approx([9_000.0, 1_000.0])


def test_a_run_is_judged_by_what_the_brokers_recorded() -> None:
    arrival = np.arange(0, 20 * SECOND_NS, SECOND_NS // 100)
    due = np.where((arrival >= 10 * SECOND_NS) & (arrival < 11 * SECOND_NS), 11 * SECOND_NS, arrival + 1_000_000)
    trace = Trace(["a"], np.zeros_like(arrival), arrival, due, due, due)
    run = judged(STEPS["50-10"], "fitted", 3, [trace], 10 * SECOND_NS, 20 * SECOND_NS, AdaptationOptions(), "c0ffee")
    assert run.drained_s == pytest.approx(1.0, abs=0.02)
    assert run.back_s == pytest.approx(2.0, abs=0.11)
    assert (run.before_p99_ms, run.worst_p99_ms, run.messages) == (1.0, 1.0, 2000)


def test_the_table_has_median_and_worst_and_never_and_how_many_runs() -> None:
    runs = [RUN, replace(RUN, back_s=2.6), replace(RUN, mode="static", drained_s=None, back_s=None)]
    table = markdown(runs)
    assert "1.2 (1.2) / 2.4 (2.6); 2 ms; 2" in table
    assert "never (never) / never (never); 2 ms; 1" in table
    assert RUN.row()["back_s"] == 2.2
    assert runs[2].row()["back_s"] is None


def test_it_is_fast_enough_only_within_the_time_that_is_asked_for() -> None:
    assert missed([RUN]) == []
    assert "not drained within 2 s" in missed([replace(RUN, drained_s=2.1)])[0]
    assert "not back within 3 s" in missed([replace(RUN, back_s=None)])[0]


def test_static_must_never_be_back() -> None:
    never = replace(RUN, mode="static", drained_s=None, back_s=None)
    assert missed([never]) == []
    assert "static" in missed([never, replace(never, back_s=4.0)])[0]


def test_the_worst_broker_at_the_end_is_compared_with_proportional() -> None:
    slow = replace(RUN, mode="proportional", worst_p99_ms=9.0, back_s=40.0)
    assert "0.22" in missed([RUN, slow])[0]
    assert missed([RUN, replace(slow, worst_p99_ms=10.0)]) == []
    assert "0.20 of proportional's" in claim([RUN, replace(slow, worst_p99_ms=10.0)], 5.0)


def test_a_kept_run_is_read_as_it_was_and_one_that_is_none_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path, "50-10", "proportional, 2 s", 3)
    assert kept(path) is None
    run = replace(RUN, mode="proportional, 2 s", number=3, back_s=None)
    keep(path, run)
    keep(file_of(tmp_path, "50-10", "fitted", 0), RUN)
    assert kept(path) == run
    assert kept_in(tmp_path) == [RUN, run]
    path.write_text("{}")
    with pytest.raises(BadInput, match="must hold a run"):
        kept_in(tmp_path)


def test_a_kept_run_is_resumed_from_only_if_the_same_sources_made_it(tmp_path: Path) -> None:
    options = AdaptationOptions(directory=tmp_path, resume=True)
    assert not is_kept(options, "c0ffee", "50-10", "fitted", 0)
    keep(file_of(tmp_path, "50-10", "fitted", 0), RUN)
    assert is_kept(options, "c0ffee", "50-10", "fitted", 0)
    assert not is_kept(options, "decade", "50-10", "fitted", 0)
    with pytest.raises(BadInput, match="must be a run with before, after and seed"):
        is_kept(replace(options, seed=2), "c0ffee", "50-10", "fitted", 0)


def test_runs_of_another_seed_or_commit_are_left_out_and_named() -> None:
    seeded, older = replace(RUN, seed=2, number=3), replace(RUN, mode="gdrl", commit=None)
    runs, others = alike([RUN, seeded, older], 1, "c0ffee")
    assert runs == [RUN]
    assert others == [
        "left out: fitted, 50:50 -> 10:90, run 3: seed 2, commit c0ffee",
        "left out: gdrl, 50:50 -> 10:90, run 0: seed 1, commit unknown",
    ]


def test_an_unknown_step_is_refused_with_those_that_there_are() -> None:
    assert chosen("step", [], ("a", "b")) == ("a", "b")
    with pytest.raises(BadInput, match=r"step: 'x': must be one of a, b"):
        chosen("step", ["x"], ("a", "b"))
