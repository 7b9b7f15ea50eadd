"""Table 1 on real brokers: what is sent, what comes of a fitting, and which rows are run. Pure parts."""

from dataclasses import replace

import pytest
import trio

from bench.comparisons.rows.turns import TRIES
from bench.experiments.table1 import fitted_rows as real_table
from bench.experiments.table1.fitted_rows import (
    Table1Options,
    _measured,
    document,
    plan,
    row_of,
    settings_of,
    table1,
)
from bench.experiments.table1.rows import PAPER_S, burst_of, file_of, keep
from distributor.fitting.summary import begun
from distributor.fitting.task import FittingOptions
from distributor.placement.planner import burst_of as bucket_of
from srtm.errors import BadInput
from srtm.topics.spec import parse_topic_json
from tests.bench.experiments.table1.test_rows import MADE
from tests.support.run_results import result, target

WHERE = {"broker-1": "127.0.0.1:1", "broker-2": "127.0.0.1:2", "broker-3": "127.0.0.1:3"}
OPTIONS = Table1Options()
FOUND = {
    "state": "fits",
    "certain": True,
    "took_s": 3.0,
    "rounds": [{"brokers": 1, "took_s": 2.0}, {"brokers": 2, "took_s": 1.0}],
    "explanation": ["fits"],
}
LATE = result(valid=False, reasons=["late"])


def assigned(brokers):
    names = [f"p{number}" for number in range(len(brokers))]
    return {"ids": names, "brokers": brokers, "rates": [10.0] * len(brokers)}


def row(found=FOUND, after=None, tries=1):
    heard = [target(p99_ms=0.5, received=9), target(p99_ms=0.7, received=9)]
    after = result(targets=heard) if after is None else after
    return row_of(5, "sequential", found, assigned(["broker-2", None, "broker-1", "broker-2"]), after, tries, OPTIONS)


def test_publishers_send_from_where_they_are_assigned_and_those_without_a_broker_wait():
    made = plan(assigned(["broker-3", None, "broker-1", "broker-3"]), WHERE, 2, 7, 9.0)
    assert made.targets == ["127.0.0.1:1", "127.0.0.1:3"]
    assert made.publishers.ids == ["p0", "p2", "p3"]
    assert made.publishers.target == [1, 0, 1]
    assert made.publishers.group == [0, 1, 1]
    assert set(made.publishers.process) == {"staggered"}
    assert [one.target for one in made.subscribers] == [0, 1]
    assert (made.seed, made.duration_s) == (7, 9.0)


@pytest.mark.parametrize("group", PAPER_S)
def test_the_topic_is_a_valid_one_of_10_000_messages_a_second_with_the_bucket_of_section_6(group):
    spec = parse_topic_json(document(group))
    assert spec.publishers.load == 10_000
    assert len(spec.publishers.group_names) == -(-1_000 // group)
    assert spec.rate == pytest.approx(11_000)
    assert bucket_of(spec) == burst_of(group) >= 10 * group


def test_a_row_has_rounds_brokers_and_the_worst_p99_of_the_time_afterwards():
    made = row()
    assert made.rounds == ((1, 2.0), (2, 1.0))
    assert made.assigned == (10.0, 20.0)
    assert (made.worst_p99_ms, made.lost, made.reasons) == (0.7, 0, ())
    assert made.settings == settings_of(OPTIONS)


def test_a_broker_that_received_nothing_has_no_p99():
    assert row(after=result(targets=[target(p99_ms=0.5, received=9), target()])).worst_p99_ms is None
    assert row(after=result(targets=[])).worst_p99_ms is None


def test_what_was_lost_or_refused_and_why_a_time_does_not_count_is_in_the_row():
    made = row(after=result(lost=2, refused=3, valid=False, reasons=["late"]), tries=4)
    assert (made.lost, made.reasons, made.tries) == (5, ("late",), 4)


def test_a_fitting_that_failed_makes_a_row_with_its_reason():
    found = begun("failed", FittingOptions(), "", reason="a broker is silent")
    assert (row(found).took_s, row(found).explanation) == (None, ("a broker is silent",))


@pytest.mark.parametrize(
    ("times", "tries"),
    [
        ([result()], 1),
        ([LATE, LATE, result()], 3),
        ([LATE] * (TRIES + 1), TRIES),
        ([result(valid=False, reasons=["late"], lost=1), result()], 1),  # a finding
    ],
)
def test_a_time_that_does_not_count_is_measured_again_a_few_times(times, tries, monkeypatch):
    left = list(times)

    async def run_plan(*_, **__):
        return left.pop(0)

    monkeypatch.setattr(real_table, "run_plan", run_plan)
    after, taken = trio.run(_measured, None, OPTIONS)
    assert (after, taken) == (times[tries - 1], tries)


def run_table(options, monkeypatch):
    """(groups that were fitted, whether all are reached, what was shown)"""
    fitted, shown = [], []

    async def fit_row(group, method, _):
        fitted.append(group)
        return replace(MADE, group=group, method=method, settings=settings_of(options))

    monkeypatch.setattr(real_table, "fit_row", fit_row)
    monkeypatch.setattr(real_table, "source_fingerprint", lambda: "abc")
    reached = trio.run(table1, options, shown.append)
    return fitted, reached, shown


def test_rows_that_are_kept_are_not_fitted_again_but_shown_with_the_others(tmp_path, monkeypatch):
    options = Table1Options(rows=(5, 10), directory=tmp_path, resume=True)
    keep(tmp_path, replace(MADE, settings=settings_of(options)))
    fitted, reached, shown = run_table(options, monkeypatch)
    assert (fitted, reached) == ([10], True)
    assert shown[0].endswith("(kept)")
    assert "| 5 |" in shown[-1]
    assert "| 10 |" in shown[-1]
    assert file_of(tmp_path, 10, "sequential").exists()
    assert run_table(options, monkeypatch)[0] == []


def test_without_resume_every_row_is_fitted(tmp_path, monkeypatch):
    options = Table1Options(rows=(5,), directory=tmp_path)
    keep(tmp_path, replace(MADE, settings=settings_of(options)))
    assert run_table(options, monkeypatch)[0] == [5]


def test_no_rows_at_all_are_refused(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="rows"):
        run_table(Table1Options(rows=(), directory=tmp_path), monkeypatch)


def test_rows_that_the_paper_has_not_are_refused_and_none_counts_twice():
    from bench.commands.main import _groups

    assert _groups("rows", "5,10,5") == [5, 10]
    assert _groups("paper-rows", "") == []
    with pytest.raises(BadInput, match="rows"):
        _groups("rows", "5,7")
