"""Threads of another process by their names, work that gives way to others, and how many files may be open."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from srtm.errors import Unavailable

ENGINE = "srtm-engine"  # carries the messages of a broker
_T = TypeVar("_T")


def threads_named(pid: int, names: Collection[str]) -> Iterator[Path]:
    """Their folders in /proc. Raises FileNotFoundError where the process is gone."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):  # one that has just ended
            continue
        if name in names:
            yield task


def giving_way(work: Callable[[], _T]) -> _T:
    """What ``work`` returns. It runs in a thread of its own that lets every other one go first.

    That is SCHED_IDLE; in a process in real time, the lowest priority there. The kernel lets nobody but root have a
    higher one again.
    """
    with ThreadPoolExecutor(1, initializer=_give_way) as thread:
        return thread.submit(work).result()


def _give_way() -> None:
    policy = os.sched_getscheduler(0)
    in_real_time = policy in (os.SCHED_FIFO, os.SCHED_RR)
    lowest = (policy, os.sched_get_priority_min(policy)) if in_real_time else (os.SCHED_IDLE, 0)
    os.sched_setscheduler(0, lowest[0], os.sched_param(lowest[1]))


def allow_descriptors(needed: int) -> None:
    """Raise the soft limit, which child processes inherit. Raises Unavailable where the hard one is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(
            f"{needed} open files are needed and {hard} allowed: raise the limit (ulimit -Hn), then again"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
