"""Where a result comes from: when, from which commit and on what machine it was measured."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import UTC, datetime

import msgspec

from bench.harness.machine import softirqs
from bench.harness.machine.host import Host
from bench.harness.results.sources import source_commit

_PLACES = {"--directory", "--json", "--png"}
_REALTIME = {os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR"}


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """When, from which commit and where a result was measured."""

    command: str  # as it was given, but for where else its results went
    day: str  # ISO 8601, UTC
    commit: str  # of the sources; "unknown": not run from a checkout
    host: str  # and which precedence the command had there

    @classmethod
    def here(cls, started: float) -> Origin:
        """``started``: s since 1970."""
        host, day = Host.here(), datetime.fromtimestamp(started, UTC).date()
        where = f"{host.cores} cores, Linux {host.kernel}{_precedence()}"
        return cls(command=command_line(), day=day.isoformat(), commit=source_commit() or "unknown", host=where)

    @property
    def text(self) -> str:
        return f"Measured {self.day} at commit {self.commit} on {self.host}."


def command_line() -> str:
    """Of this process, without options that name places of this machine."""
    module = sys.modules["__main__"].__spec__  # of ``python -m``
    program = ["srtm"] if module is None or module.name.startswith("srtm") else ["python", "-m", module.name]
    given = [word for word, before in zip(sys.argv[1:], sys.argv, strict=False) if not {word, before} & _PLACES]
    return shlex.join([*program, *given])


def provenance(started: float) -> str:
    """``Origin.text`` of this command. ``started``: s since 1970."""
    return Origin.here(started).text


def has_precedence() -> bool:
    """Whether this process goes before the machine's ordinary work. Those that it starts inherit that."""
    return os.sched_getscheduler(0) in _REALTIME


def _precedence() -> str:
    """Where all of it ran before the machine's ordinary work (``chrt``), or before or behind some of it (``nice``)."""
    policy, nice = _REALTIME.get(os.sched_getscheduler(0)), os.getpriority(os.PRIO_PROCESS, 0)
    if policy is None:
        return f", at nice {nice}" if nice else ""
    behind = ", ksoftirqd behind it" if softirqs.are_behind() else ""
    return f", under {policy} {os.sched_getparam(0).sched_priority}{behind}"
