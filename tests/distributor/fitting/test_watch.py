"""One broker in a round: what was dropped, and what nobody took, says something too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distributor.fitting.events import Progress, Task
from distributor.fitting.watch import Lateness, Watch, watch_of
from distributor.model.columns import ALONE
from distributor.placement.allocation import Demand
from distributor.prediction.sequential_test import Intervals, Verdict

MS = 1_000_000  # ns
DEMAND = Demand(rates=np.ones(1), groups=np.full(1, ALONE), rate=2.0, burst=1.0)
TASK = Task(demand=DEMAND, percentile=99, target_ns=MS)


def in_time(intervals: int, first: int = 0) -> Intervals:
    """Each of two messages that took half of the target; no two intervals follow each other."""
    at = np.arange(first, first + intervals, dtype=np.int64) * 3
    two = np.full(intervals, 2, dtype=np.int64)
    return Intervals(at=at, count=two, late=np.zeros_like(two), latency_ns=two * MS // 2)


def heard(*events: Progress) -> Watch:
    watch = watch_of(TASK)
    for event in events:
        watch.receive(event)
    watch.judge()
    return watch


def said(intervals: Intervals, *, lost: int = 0, unsent: int = 0, final: bool = False) -> Progress:
    return Progress(broker="b", round=1, intervals=intervals, lost=lost, unsent=unsent, final=final)


def test_without_a_gap_what_was_in_time_is_clearly_below():
    watch = heard(said(in_time(1000)))
    assert (watch.verdict, watch.sees_too_little) == (Verdict.BELOW, False)


def test_what_the_trace_dropped_was_late():
    watch = heard(said(in_time(1000), lost=60, final=True))
    assert (watch.test.late, watch.test.count) == (60, 2060)
    assert (watch.verdict, watch.is_above) == (Verdict.ABOVE, True)


def test_what_was_dropped_counts_once_however_often_it_is_told():
    watch = heard(said(in_time(500), lost=10), said(in_time(500, first=500), lost=10), said(in_time(0), lost=10))
    assert (watch.test.late, watch.test.count) == (10, 2010)


@pytest.mark.parametrize("unsent", [0, 1000])
def test_where_everything_was_dropped_nothing_is_within(unsent):
    watch = heard(said(in_time(0), lost=5, unsent=unsent, final=True))
    assert (watch.test.count, watch.is_above) == (0, True)


def test_what_nobody_took_leaves_open_what_the_rest_would_be_clear_about():
    few, many = heard(said(in_time(1000), unsent=20)), heard(said(in_time(1000), unsent=21, final=True))
    assert (few.verdict, few.sees_too_little) == (Verdict.BELOW, False)
    assert (many.verdict, many.is_above) == (Verdict.UNDECIDED, False)
    assert many.sees_too_little
    assert many.unsent_part == pytest.approx(21 / 2021)


def test_latency_rises_by_what_it_grows_in_the_time_that_passed():
    queue = in_time(1000)  # 3 ms from one to the next
    heard_of = heard(said(replace(queue, latency_ns=queue.count * queue.at * MS // 2)))
    assert heard_of.rise == pytest.approx(0.5)
    assert heard(said(queue)).rise == 0


def test_where_nothing_was_heard_latency_does_not_rise():
    assert heard(said(in_time(0), lost=5, final=True)).rise == 0


def test_the_layout_before_would_be_later_by_now_if_it_got_later_and_as_late_if_not():
    assert Lateness(worst_ns=2 * MS, rise=0.5, at_ns=10 * MS).by(14 * MS) == 4 * MS
    assert Lateness(worst_ns=2 * MS, rise=-0.5, at_ns=10 * MS).by(14 * MS) == 2 * MS


def test_what_was_clear_is_not_any_more_once_messages_are_left_lying():
    watch = heard(said(in_time(1000)))
    watch.receive(said(in_time(1, first=1000), unsent=500))
    watch.judge()
    assert watch.verdict is Verdict.UNDECIDED
