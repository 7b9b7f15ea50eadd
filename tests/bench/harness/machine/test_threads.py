"""How many files may be open, and work that gives way."""

from __future__ import annotations

import os

import pytest

from bench.harness.machine.threads import allow_descriptors, giving_way
from srtm.errors import Unavailable


def test_too_few_descriptors_are_refused_with_the_number_needed() -> None:
    with pytest.raises(Unavailable, match="99999999 open files are needed"):
        allow_descriptors(99_999_999)


def test_only_the_work_gives_way_also_of_a_user_who_may_not_take_its_priority_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = os.sched_setscheduler

    def change_as_a_user(pid: int, policy: int, param: os.sched_param) -> None:
        if os.sched_getscheduler(pid) == os.SCHED_IDLE:
            raise PermissionError
        change(pid, policy, param)

    monkeypatch.setattr(os, "sched_setscheduler", change_as_a_user)
    before = os.sched_getscheduler(0)
    for _ in range(2):
        assert giving_way(lambda: os.sched_getscheduler(0)) == os.SCHED_IDLE
        assert os.sched_getscheduler(0) == before
