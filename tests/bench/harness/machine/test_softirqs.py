"""Whether the kernel's packet work waits for what runs in real time."""

import os
from pathlib import Path

import pytest

from bench.harness.machine.softirqs import are_behind

OURS = 0
ENDED = 99  # while it is looked at


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, name in {1: "init", 14: "ksoftirqd/0", 22: "ksoftirqd/1", 30: "srtm", ENDED: "ksoftirqd/2"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    return tmp_path


@pytest.fixture
def priorities(monkeypatch):
    found = {OURS: 10, 1: 0, 14: 12, 22: 12, 30: 0}

    def look(pid: int) -> os.sched_param:
        if pid == ENDED:
            raise ProcessLookupError(pid)
        return os.sched_param(found[pid])

    monkeypatch.setattr(os, "sched_getparam", look)
    return found


def test_threads_above_ours_are_not_behind(proc, priorities):
    assert not are_behind(proc)


@pytest.mark.parametrize("priority", [0, 9, 10])
def test_a_single_one_that_is_not_above_ours_is_behind(proc, priorities, priority):
    priorities[22] = priority
    assert are_behind(proc)


def test_ordinary_work_goes_before_none_of_them(proc, priorities):
    priorities.update({OURS: 0, 14: 0, 22: 0})
    assert not are_behind(proc)


def test_what_goes_before_this_process_may_go_before_them(proc, priorities):
    priorities.update({OURS: 0, 14: 0, 22: 1})
    assert are_behind(proc, raised=1)
    priorities.update({14: 2, 22: 2})
    assert not are_behind(proc, raised=1)


def test_where_none_is_seen_none_is_behind(tmp_path, priorities):
    assert not are_behind(tmp_path)
