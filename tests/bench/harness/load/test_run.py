"""What was taken of the processors counts for the measured part of a run alone."""

import os

import pytest

from bench.harness.load import run
from bench.harness.load.run import Meanwhile, RunProgress, _realtime
from bench.harness.machine.host import Disturbance
from srtm.errors import BadInput


@pytest.fixture
def taken(monkeypatch):
    """Sets what the machine's counters say from now on."""

    def says(steal_s, periods):
        found = Disturbance(steal_s, 0.0, 100 * steal_s, periods)
        monkeypatch.setattr(run.Disturbance, "now", lambda: found)

    says(0.0, 0)
    return says


def progress(phase, elapsed_s):
    counts = dict.fromkeys(("offered", "sent", "refused", "received"), 0)
    return RunProgress(phase=phase, elapsed_s=elapsed_s, **counts, lateness_p99_ms=0.0, p99_ms=0.0)


def test_neither_connecting_nor_the_warm_up_nor_the_drain_counts(taken):
    meanwhile = Meanwhile(warmup_s=1.0)
    taken(1.0, 10)
    meanwhile.note(progress("connecting", 0.0))
    taken(2.0, 20)
    meanwhile.note(progress("warmup", 0.9))
    taken(3.0, 21)
    meanwhile.note(progress("warmup", 1.1))  # the phase is told a little late, the time is not
    taken(4.0, 22)
    meanwhile.note(progress("draining", 3.0))
    taken(9.0, 90)
    meanwhile.note(progress("done", 3.5))
    assert meanwhile.taken() == Disturbance(2.0, 0.0, 200.0, 2)


def test_connecting_does_not_count_without_a_warm_up_either(taken):
    meanwhile = Meanwhile(warmup_s=0.0)
    taken(1.0, 10)
    meanwhile.note(progress("connecting", 0.0))
    taken(1.5, 11)
    meanwhile.note(progress("warmup", 0.2))
    assert meanwhile.taken() == Disturbance(0.5, 0.0, 50.0, 1)


def test_a_run_that_nobody_looked_at_counts_whole(taken):
    meanwhile = Meanwhile(warmup_s=1.0)
    taken(0.5, 3)
    assert meanwhile.taken() == Disturbance(0.5, 0.0, 50.0, 3)


@pytest.mark.parametrize(("had", "has"), [(0, 1), (10, 11), (99, 99)])
def test_only_what_is_started_inside_has_a_real_time_priority_above_that_of_the_rest(monkeypatch, had, has):
    asked = []
    monkeypatch.setattr(os, "sched_getparam", lambda _pid: os.sched_param(had))
    monkeypatch.setattr(os, "sched_setscheduler", lambda _, *what: asked.append((what[0], what[1].sched_priority)))
    with _realtime():
        assert asked == [(os.SCHED_FIFO, has)]
    assert asked[1:] == [(os.sched_getscheduler(0), had)]


def test_a_real_time_priority_that_the_kernel_refuses_is_refused_by_name(monkeypatch):
    def refuses(*_what):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuses)
    with pytest.raises(BadInput, match="realtime: 'true': needs the capability CAP_SYS_NICE"), _realtime():
        raise AssertionError("entered")
