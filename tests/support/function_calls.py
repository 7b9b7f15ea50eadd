"""Counts function calls: how work grows, without a clock."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import trio


class FunctionCalls(trio.abc.Instrument):
    """Of Python's and C's functions, in this thread: ``total``, and ``longest_turn``, the most between two turns of
    other tasks."""

    def __init__(self) -> None:
        self.total = self.longest_turn = self._turn_began = 0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        self._turn_began = self.total

    def after_task_step(self, _task: trio.lowlevel.Task) -> None:
        self.end_turn()

    def end_turn(self) -> None:
        """What was counted since its beginning is one."""
        self.longest_turn = max(self.longest_turn, self.total - self._turn_began)

    def note(self, _frame: FrameType, event: str, _argument: object) -> None:
        """For ``sys.setprofile``."""
        self.total += event in ("call", "c_call")


@contextmanager
def counted() -> Iterator[FunctionCalls]:
    """Within it, function calls are counted, but for those of a collection of garbage, which comes when it will."""
    calls, before = FunctionCalls(), sys.getprofile()
    gc.collect()
    gc.disable()
    trio.lowlevel.add_instrument(calls)
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        gc.enable()
        calls.end_turn()
        trio.lowlevel.remove_instrument(calls)
