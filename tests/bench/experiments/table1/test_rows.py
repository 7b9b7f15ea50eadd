"""A row of Table 1: what is left on its brokers, what it is judged by, and when a kept one counts."""

from dataclasses import replace

import pytest

from bench.experiments.table1.rows import (
    PAPER_ROUNDS,
    PAPER_S,
    Row,
    file_of,
    keep,
    kept,
    kept_by_one,
    line_of,
    verdicts,
)
from srtm.errors import BadInput

SETTINGS = {"brokers": 8.0, "realtime": False}
MADE = Row(
    group=5,
    method="sequential",
    state="fits",
    certain=True,
    took_s=3.0,
    rounds=((1, 2.0),),
    assigned=(10_000.0,),
    worst_p99_ms=0.5,
    service_us=18.0,
    promise_ms=1.0,
    settings=SETTINGS,
    sources="abc",
)
PAPERS = replace(MADE, method="paper", took_s=61.0)


def reached(*rows):
    return [verdict.reached for verdict in verdicts(rows)]


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, True),
        ({"took_s": 3.3}, False),  # a twentieth of 64 s is 3.2
        ({"took_s": 40.0, "method": "paper"}, True),
        ({"took_s": 9.0, "group": 10, "assigned": (5_000.0, 5_000.0)}, True),
        ({"state": "does not fit"}, False),
        ({"state": "failed", "took_s": None, "certain": None, "rounds": (), "assigned": ()}, False),
        ({"worst_p99_ms": 1.1}, False),
        ({"worst_p99_ms": None}, False),
        ({"lost": 1}, False),
        ({"reasons": ("the generator was late",)}, False),
        ({"assigned": (5_000.0, 5_000.0)}, False),  # the paper has it on one
    ],
)
def test_a_row_is_reached_if_it_fits_in_time_on_few_brokers_and_keeps_the_promise_in_a_time_that_counts(changes, right):
    assert reached(replace(MADE, **changes)) == [right]


def test_ours_may_take_as_many_brokers_as_the_papers_way_took_here():
    ours, papers = replace(MADE, assigned=(5_000.0, 5_000.0)), replace(PAPERS, assigned=(5_000.0, 5_000.0))
    assert reached(ours, papers) == [True, True]
    assert reached(ours, PAPERS) == [False, True]


def test_what_is_shown_aside_is_not_judged():
    assert reached(replace(PAPERS, aside=True, state="failed")) == []


def test_the_line_names_the_rows_that_are_not_reached_and_why():
    late = replace(MADE, group=10, took_s=11.7)
    spoilt = replace(MADE, group=15, reasons=("late",), assigned=(1.0,))
    assert line_of("table1", verdicts([MADE])) == "table1: reached"
    line = line_of("table1", verdicts([MADE, late, spoilt]))
    assert line.startswith(
        "table1: 2 of 3 rows not reached: groups of 10: fell short: time 11.7 s, must be at most 9.45"
    )
    assert line.endswith("groups of 15: no verdict: late")


def test_the_papers_rounds_of_60_s_are_most_of_its_times():
    for group, rounds in PAPER_ROUNDS.items():
        assert 60 * sum(rounds) <= PAPER_S[group] <= 1.1 * 60 * sum(rounds)


def test_one_broker_keeps_as_many_members_of_every_group_as_it_serves_in_time_and_few_more():
    in_time = 5 * 34  # 50 messages of 18 us of each of 34 groups; of a sixth member's only the last 5 are late
    assert in_time < kept_by_one(30, 18.0, 1.0) <= 1.05 * in_time
    assert kept_by_one(5, 18.0, 1.0) >= 1_000
    assert kept_by_one(30, 2_000.0, 1.0) == 0


def test_what_is_left_is_counted_on_the_brokers_in_use():
    most = 10.0 * kept_by_one(30, 18.0, 1.0)
    row = replace(MADE, group=30, assigned=(most - 300.0, most + 50.0, most - 20.0))
    assert row.left == pytest.approx(320.0)


def test_rounds_are_counted_by_the_brokers_that_they_were_taken_on():
    row = replace(MADE, rounds=((1, 60.0), (1, 60.0), (3, 2.5)))
    assert row.by_k() == {1: (2, 120.0), 3: (1, 2.5)}
    assert (row.flat()["rounds_k1"], row.flat()["measured_k3_s"], row.flat()["rounds"]) == (2, 2.5, 3)


def test_a_row_is_kept_for_the_same_sources_and_settings(tmp_path):
    assert kept(tmp_path, 5, "sequential", SETTINGS, "abc") is None
    keep(tmp_path, MADE)
    assert kept(tmp_path, 5, "sequential", SETTINGS, "abc") == MADE
    assert kept(tmp_path, 5, "paper", SETTINGS, "abc") is None
    assert kept(tmp_path, 5, "sequential", SETTINGS, "def") is None
    assert kept(tmp_path, 5, "sequential", SETTINGS, None) is None


@pytest.mark.parametrize("changes", [{"sources": "def"}, {"sources": None}, {"reasons": ("late",)}])
def test_what_other_or_unknown_sources_made_or_does_not_count_is_found_anew(changes, tmp_path):
    keep(tmp_path, replace(MADE, **changes))
    assert kept(tmp_path, 5, "sequential", SETTINGS, "abc") is None


def test_rows_of_other_settings_and_files_that_hold_none_are_refused(tmp_path):
    keep(tmp_path, MADE)
    with pytest.raises(BadInput, match="brokers 8: remove it"):
        kept(tmp_path, 5, "sequential", {**SETTINGS, "brokers": 7.0}, "abc")
    file_of(tmp_path, 5, "sequential").write_text("{}")
    with pytest.raises(BadInput, match="must hold a row"):
        kept(tmp_path, 5, "sequential", SETTINGS, "abc")
