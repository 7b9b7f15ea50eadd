"""An attacker on a processor of its own, as if it were on a machine of its own: broker's engine and generator have the
others.

Where they share one, the kernel decides who waits for whom, and not by what the broker does. A thread under SCHED_IDLE
is owed a little of its processor, and gets it until the next tick (1 to 4 ms) whenever a thread in real time displaces
an engine that is ordinary work (EEVDF picks who is owed, however little it be); an engine in real time that a flood
keeps busy is stopped for up to 50 ms by what Linux keeps for ordinary work (``fair_server``); and who goes first still
waits for the end of a system call. What an attacker sends is received on its own processor (loopback), as what a
network card receives mostly is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.harness.machine.threads import ENGINE, threads_named


def may_be_apart() -> bool:
    """Whether this process has two processors or more. If not, nothing here does anything."""
    return len(os.sched_getaffinity(0)) > 1


def keep_engine_apart(broker_pid: int) -> None:
    """The engine's thread of a running broker stays off the attacker's processor. (What Python does for it may go
    there.)"""
    if may_be_apart():
        for thread in threads_named(broker_pid, [ENGINE]):
            os.sched_setaffinity(int(thread.name), _the_others())


def keep_attacker_apart(pid: int) -> None:
    """A process that has one thread so far stays on the attacker's processor."""
    if may_be_apart():
        with suppress(ProcessLookupError):  # it has ended, and whoever waits for it says so
            os.sched_setaffinity(pid, os.sched_getaffinity(0) - _the_others())


@contextmanager
def generator_apart() -> Iterator[None]:
    """Threads that this one starts inside stay off the attacker's processor."""
    before = os.sched_getaffinity(0)
    if may_be_apart():
        os.sched_setaffinity(0, _the_others())
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _the_others() -> set[int]:
    ours = os.sched_getaffinity(0)
    return ours - {max(ours)}
