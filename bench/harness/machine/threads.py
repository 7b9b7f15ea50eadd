"""Threads of another process by their names, a thread of this one that gives way, and how many files may be open."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from srtm.errors import Unavailable

ENGINE = "srtm-engine"  # carries the messages of a broker


def threads_named(pid: int, names: Collection[str]) -> Iterator[Path]:
    """Their folders in /proc. Raises FileNotFoundError where the process is gone."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):  # one that has just ended
            continue
        if name in names:
            yield task


@contextmanager
def giving_way() -> Iterator[None]:
    """This thread lets every other one go first (SCHED_IDLE; of a process in real time, the lowest priority there)."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    in_real_time = policy in (os.SCHED_FIFO, os.SCHED_RR)
    lowest = (policy, os.sched_get_priority_min(policy)) if in_real_time else (os.SCHED_IDLE, 0)
    os.sched_setscheduler(0, lowest[0], os.sched_param(lowest[1]))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def allow_descriptors(needed: int) -> None:
    """Raise the soft limit, which child processes inherit. Raises Unavailable where the hard one is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(
            f"{needed} open files are needed and {hard} allowed: raise the limit (ulimit -Hn), then again"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
