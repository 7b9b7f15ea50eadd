"""From a command into trio and back: one failure comes out as itself; a service runs until a signal."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from srtm.nursery import background_nursery, only_failure

_T = TypeVar("_T")


def run_trio(work: Callable[[], Awaitable[_T]]) -> _T:
    """``trio.run``; a group with one failure in it is raised as that failure (also KeyboardInterrupt)."""
    try:
        return trio.run(work)
    except BaseExceptionGroup as group:
        error = only_failure(group)
        if error is group:
            raise
        raise error from error.__cause__


def run_service(work: Callable[[], Awaitable[None]]) -> int:
    """Runs ``work`` until SIGTERM (0: it was asked to stop) or SIGINT (130); ``work`` is cancelled then and may clean
    up."""
    return run_trio(lambda: _until_signal(work))


async def _until_signal(work: Callable[[], Awaitable[None]]) -> int:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with background_nursery() as nursery:
            nursery.start_soon(_run_then_stop, work, nursery.cancel_scope)
            received = await anext(signals)
            return 128 + received if received == signal.SIGINT else 0
    return 0


async def _run_then_stop(work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await work()
    scope.cancel()
