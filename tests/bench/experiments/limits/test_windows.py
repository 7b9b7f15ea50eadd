"""The page of windows, log and buckets, on one run."""

from __future__ import annotations

import pytest

from bench.experiments.lab.figure import Effort
from bench.experiments.limits import windows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figure():
    return windows.figure(Effort(repetitions=1))


def test_all_but_the_articles_perfect_bucket_is_confirmed(figure):
    assert [check.what for check in figure.checks if not check.kept] == ["article: bucket of 100, most in 60 s"]


def test_the_log_is_never_wrong_and_only_windows_have_an_error(figure):
    for one in figure.rows:
        if one["algorithm"] == "log":
            assert one["let_percent"] == one["stopped_percent"] == 0
        assert (one["mean_error"] is not None) == ("window" in one["algorithm"] or "weighted" in one["algorithm"])


def test_errors_that_do_not_fall_are_a_check_that_fails(figure):
    rows = [{**one, "mean_error": 9.0} if one["slices"] == 60 else one for one in figure.rows]
    assert not windows.checks(rows)[3].kept


def test_the_curves_begin_and_end_together(figure):
    curve = figure.panels[1]
    assert len({(len(series.x), series.x[0], series.x[-1]) for series in curve.series}) == 1
