"""How many files may be open, and a thread that gives way."""

from __future__ import annotations

import os

import pytest

from bench.harness.machine.threads import allow_descriptors, giving_way
from srtm.errors import Unavailable


def test_too_few_descriptors_are_refused_with_the_number_needed() -> None:
    with pytest.raises(Unavailable, match="99999999 open files are needed"):
        allow_descriptors(99_999_999)


def test_a_thread_that_gives_way_has_its_priority_again_afterwards() -> None:
    before = os.sched_getscheduler(0)
    with giving_way():
        assert os.sched_getscheduler(0) == os.SCHED_IDLE
    assert os.sched_getscheduler(0) == before
