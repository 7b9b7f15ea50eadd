"""Runs a test of the client library under trio and under asyncio, both in simulated time.

Time jumps to the next deadline whenever nothing else can go on: trio by its ``MockClock``, asyncio by the loop below.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
import trio.testing
from trio.testing import MockClock

from srtm.client.task_groups import background_tasks

LOOPS = ("trio", "asyncio")
_TASKS = "tasks"
_QUIET_TURNS = 10  # of asyncio's loop: one callback may set off another that wakes a task


_settling: set[asyncio.Task[Any]] = set()


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: what would be waited for has passed, if no file is ready."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """asyncio's loop in simulated time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


async def settled() -> None:
    """Until every other task waits, without any time passing: anyio's own lets 0.1 s pass under asyncio."""
    try:
        me = asyncio.current_task()
    except RuntimeError:  # trio runs
        await trio.testing.wait_all_tasks_blocked()
        return
    assert me is not None
    _settling.add(me)  # several may wait for that at once
    try:
        quiet = 0
        while quiet < _QUIET_TURNS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if all(_waits(task) for task in asyncio.all_tasks() - _settling) else 0
    finally:
        _settling.discard(me)


def _waits(task: asyncio.Task[Any]) -> bool:
    waiter = task._fut_waiter  # type: ignore[attr-defined]
    return waiter is not None and not waiter.done()


def both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of an async function. A parameter ``tasks`` is a task group that ends with the test."""
    parameters = inspect.signature(test).parameters

    async def inside(fixtures: dict[str, Any]) -> None:
        if _TASKS not in parameters:
            await test(**fixtures)
            return
        async with background_tasks() as tasks:
            await test(tasks=tasks, **fixtures)

    @functools.wraps(test)
    def run(loop: str, **fixtures: Any) -> None:
        options: dict[str, Any] = (
            {"clock": MockClock(autojump_threshold=0)} if loop == "trio" else {"loop_factory": JumpingLoop}
        )
        anyio.run(inside, fixtures, backend=loop, backend_options=options)

    kept = [parameter for name, parameter in parameters.items() if name != _TASKS]
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([loop, *kept])  # type: ignore[attr-defined]
    del run.__wrapped__  # type: ignore[attr-defined]  # pytest-trio would take the test for an async one
    return pytest.mark.parametrize("loop", LOOPS)(run)
