"""``ksoftirqd``, the kernel's own thread on each processor: it does what many packets leave to do.

It is ordinary work. Where broker and generator go before all ordinary work (``chrt``) and keep a processor busy, it
gets what Linux from 6.12 on keeps for ordinary work (``fair_server``), 50 ms of each second, and everybody's packets
wait for it. ``chrt -r -p 12 PID`` for each of them, as root, lets them go first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.harness.machine.host import PROC

_NAME = "ksoftirqd/"


def are_behind(proc: Path = PROC, *, raised: int = 0) -> bool:
    """Whether this process, or what goes by ``raised`` before it, goes before one of them, or beside it. Where none can
    be seen, as in a container, there is no telling, and the answer is no."""
    ours = os.sched_getparam(0).sched_priority + raised
    return ours > 0 and any(priority <= ours for priority in _priorities(proc))


def _priorities(proc: Path) -> Iterator[int]:
    for file in proc.glob("[0-9]*/comm"):
        try:
            if file.read_text().startswith(_NAME):
                yield os.sched_getparam(int(file.parent.name)).sched_priority
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
