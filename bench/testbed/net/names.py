"""Who owns what: every namespace of a testbed is named after the process that made it.

A process is told by its id and the instant at which it started, so that another one with the same id later is not
taken for it. Whatever is not named so is somebody else's.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bench.harness.machine.host import PROC

NAMESPACES = Path("/run/netns")  # where ``ip netns`` looks
_NAME = re.compile(r"srtm-([1-9][0-9]{0,9})-(0|[1-9][0-9]{0,19})-([a-z]+[0-9]*)")
_START = 19  # of the fields of /proc/PID/stat behind the command (proc(5): field 22)


@dataclass(frozen=True)
class Owner:
    """``started``: clock ticks since the machine started."""

    pid: int
    started: int

    def name(self, host: str) -> str:
        return f"srtm-{self.pid}-{self.started}-{host}"

    def lives(self, proc: Path = PROC) -> bool:
        return _started(self.pid, proc) == self.started


def this_process() -> Owner:
    pid = os.getpid()
    started = _started(pid, PROC)
    if started is None:
        raise AssertionError("a process that runs is in /proc")
    return Owner(pid, started)


def owner_of(name: str) -> Owner | None:
    """None: it is nobody's of ours."""
    found = _NAME.fullmatch(name)
    return None if found is None else Owner(int(found[1]), int(found[2]))


def _started(pid: int, proc: Path) -> int | None:
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[_START])
