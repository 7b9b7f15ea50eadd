"""Runs a command's asynchronous work: until it ends, or as a service until a signal."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

import trio

from srtm.concurrency.background import background_nursery
from srtm.concurrency.failures import lone_failure
from srtm.net.hangup import renew_at_hangup
from srtm.net.renewals import Renewals

_T = TypeVar("_T")
_NO_SERVICES: ContextVar[bool] = ContextVar("no_services", default=False)


def run_trio(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run ``work`` in trio and return its result. A single failure is raised as itself, also KeyboardInterrupt.

    SIGTERM cancels ``work``, so that it can stop the processes that it started. Then SystemExit (143) is raised.
    """
    result: list[_T] = []

    async def note() -> None:
        result.append(await work())

    _run(partial(_until_terminated, note))
    if not result:
        raise SystemExit(128 + signal.SIGTERM)
    return result[0]


def run_service(work: Callable[[], Awaitable[None]], renewals: Renewals | None = None) -> int:
    """Run ``work`` until SIGTERM or SIGINT and return the exit status: 0 after SIGTERM, 130 after SIGINT.

    A signal cancels ``work``, which may clean up. With ``renewals`` SIGHUP has it read its files again; without, SIGHUP
    ends the process. Inside ``no_services`` nothing runs: 0.
    """
    if not starts_services():
        return 0
    return _run(partial(_until_signal, work, renewals))


@contextmanager
def no_services() -> Iterator[None]:
    """In the block ``run_service`` runs nothing: a service's settings are checked, and it does not start."""
    mark = _NO_SERVICES.set(True)
    try:
        yield
    finally:
        _NO_SERVICES.reset(mark)


def starts_services() -> bool:
    """Whether ``run_service`` runs something: not inside ``no_services``."""
    return not _NO_SERVICES.get()


def _run(work: Callable[[], Awaitable[_T]]) -> _T:
    with lone_failure():
        return trio.run(work)


async def _until_terminated(work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work``, and return early on SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with background_nursery() as nursery:
            nursery.start_soon(_cancel_at, signals, nursery.cancel_scope)
            await work()


async def _cancel_at(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


async def _until_signal(work: Callable[[], Awaitable[None]], renewals: Renewals | None) -> int:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with background_nursery() as nursery:
            if renewals is not None:
                await nursery.start(renew_at_hangup, renewals)
            nursery.start_soon(_run_then_stop, work, nursery.cancel_scope)
            received = await anext(signals)
            return 128 + received if received == signal.SIGINT else 0
    return 0


async def _run_then_stop(work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await work()
    scope.cancel()
