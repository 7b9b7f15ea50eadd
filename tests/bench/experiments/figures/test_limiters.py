"""The comparison of limiters, short."""

import pytest

from bench.experiments.figures import limiters
from bench.experiments.lab.figure import Effort
from bench.harness.cluster_runs.recovery import SECOND_NS


@pytest.fixture(scope="module")
def rows():
    made = []
    for case in limiters.cases(Effort(seconds=2.0)):
        for name, limit in limiters.limiters_of(case, 1).items():
            made.append(limiters.row(case, name, limit()))
    return made


def of(rows, name: str):
    return [row for row in rows if row["limiter"] == name]


@pytest.mark.slow
def test_all_limiters_see_the_same_messages(rows):
    for case in {row["case"] for row in rows}:
        assert len({row["messages"] for row in rows if row["case"] == case}) == 1


def test_what_polices_never_delays_and_what_delays_never_drops(rows):
    for row in rows:
        assert (row["p99_ms"] == 0) if row["polices"] else (row["dropped_part"] == 0)


def test_nothing_of_ours_and_no_bucket_of_others_lets_more_go_than_the_envelope(rows):
    for name in (*limiters.OURS, "even split", "central Redis bucket", limiters.ONE_BUCKET):
        assert [row["over"] for row in of(rows, name)] == [0.0, 0.0, 0.0]


def test_no_split_delays_less_than_the_one_bucket(rows):
    for best in of(rows, limiters.ONE_BUCKET):
        others = [row for row in rows if row["case"] == best["case"] and not row["polices"] and not row["stuck"]]
        assert min(row["mean_ms"] for row in others) == best["mean_ms"]


@pytest.mark.parametrize("mode", ["fitted", "gdrl"])
def test_what_is_said_after_the_traffic_is_not_counted(mode, monkeypatch):
    shifted = limiters.cases(Effort(seconds=2.0))[1]
    wire = limiters.ours(mode, shifted, 1).wire
    monkeypatch.setattr(limiters, "_AFTER_NS", 30 * SECOND_NS)
    assert limiters.ours(mode, shifted, 1).wire == wire > 0


def test_more_than_the_envelope_or_more_delay_is_a_check_that_fails(rows):
    worse = [{**row, "over": 1.0} if row["limiter"] == "gdrl" else row for row in rows]
    assert not limiters.checks(worse)[0].kept
    slow = [{**row, "mean_ms": 1e9} if row["limiter"] == "fitted" else row for row in rows]
    assert [check.kept for check in limiters.checks(slow)[2::2]] == [False, False, False]
