from __future__ import annotations

from dataclasses import replace

from bench.experiments.steps.run import STEPS
from bench.experiments.steps.table import conditions, missed, scarce, table, verdict
from tests.support.step_runs import RUN

NEVER = replace(RUN, mode="static", drained_s=None, back_s=None)
SLOW = replace(RUN, mode="proportional", drained_s=27.0, back_s=40.0, watched_s=60.0)
OTHERS = ("gdrl", "central", "static")
SPOILT = replace(RUN, number=9, back_s=None, reasons=["p99 before the step 40 ms, over 25 ms: not settled"])


def test_the_table_has_median_and_worst_and_never_and_how_many_runs() -> None:
    runs = [RUN, replace(RUN, back_s=2.6, before_p99_ms=2.2), NEVER]
    shown = table(runs).markdown
    assert "1.2 (1.2) / 2.4 (2.6); 2 (2.2) -> 2 (2) ms; 2 |" in shown
    assert "never (never) / never (never); 1.8 (1.8) -> 2 (2) ms; 1 |" in shown
    assert RUN.row()["back_s"] == 2.2
    assert NEVER.row()["back_s"] is None
    assert "not within 8 s (fitted), 8 s (static)" in conditions(runs)
    assert "in the 3 s before it. Back" in conditions(runs)
    assert "in the 3 s before it (proportional: 10 s, its window). Back" in conditions([*runs, SLOW])


def test_what_does_not_count_is_counted_and_nothing_else() -> None:
    assert "1.2 (1.2) / 2.2 (2.2); 1.8 (1.8) -> 2 (2) ms; 1, 1 that do not count |" in table([RUN, SPOILT]).markdown
    assert "0, 1 that do not count |" in table([SPOILT]).markdown
    assert missed([RUN, SPOILT]) == []
    assert missed([SPOILT]) == ["fitted, 50:50 -> 10:90: no run counts"]


def test_where_nothing_was_settled_before_the_step_no_time_is_given() -> None:
    central = replace(RUN, mode="central", before_p99_ms=3_000.0, back_s=1.0)
    assert "not settled before; 3e+03 (3e+03) -> 2 (2) ms; 1 |" in table([central]).markdown


def test_it_is_fast_enough_only_within_the_time_that_is_asked_for() -> None:
    assert missed([RUN]) == []
    assert "not drained within 2 s" in missed([replace(RUN, drained_s=2.1)])[0]
    assert "not back within 3 s" in missed([replace(RUN, back_s=None)])[0]


def test_proportional_must_be_back_within_a_minute() -> None:
    assert missed([SLOW]) == []
    late = replace(SLOW, back_s=60.1)
    assert missed([SLOW, late, late]) == ["proportional, 50:50 -> 10:90: not back within 60 s"]


def test_static_must_never_be_back() -> None:
    assert missed([NEVER]) == []
    assert "static" in missed([NEVER, replace(NEVER, back_s=4.0)])[0]


def test_a_mode_with_fewer_than_ten_runs_that_count_says_so() -> None:
    ten = [replace(RUN, step=step.name, number=at) for step in STEPS.values() for at in range(10)]
    assert scarce([*ten, SLOW]) == ["proportional 1, 0, 0, 0", *(f"{mode} 0, 0, 0, 0" for mode in OTHERS)]
    assert scarce([*ten[1:], SPOILT])[0] == "fitted 9, 10, 10, 10"


def test_the_mode_that_is_none_of_the_five_is_missed_only_where_it_was_run() -> None:
    assert "proportional, 2 s 1, 0, 0, 0" in scarce([replace(RUN, mode="proportional, 2 s")])


def test_the_verdict_says_what_fell_short_and_what_is_missing() -> None:
    assert verdict([RUN]).startswith(
        "adaptation: reached, of what was run. Fewer than 10 runs of a step that count: fitted 1, 0"
    )
    assert verdict([replace(RUN, back_s=3.5)]).startswith("adaptation: fell short: fitted, 50:50 -> 10:90: not back")
