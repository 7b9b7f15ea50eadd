"""The line under a figure in a document: when, from which commit and on what machine it was measured."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from bench.harness.machine import softirqs
from bench.harness.machine.host import Host
from bench.harness.results.results import source_commit

_REALTIME = {os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR"}


def provenance(started: float) -> str:
    """``started``: s since 1970. Where all of it ran before the machine's ordinary work (``chrt``), or before or behind
    some of it (``nice``), it says so."""
    host, day = Host.here(), datetime.fromtimestamp(started, UTC).date()
    where = f"{host.cores} cores, Linux {host.kernel}{_precedence()}"
    return f"Measured {day} at commit {source_commit() or 'unknown'} on {where}."


def has_precedence() -> bool:
    """Whether this process goes before the machine's ordinary work. Those that it starts inherit that."""
    return os.sched_getscheduler(0) in _REALTIME


def _precedence() -> str:
    policy, nice = _REALTIME.get(os.sched_getscheduler(0)), os.getpriority(os.PRIO_PROCESS, 0)
    if policy is None:
        return f", at nice {nice}" if nice else ""
    behind = ", ksoftirqd behind it" if softirqs.are_behind() else ""
    return f", under {policy} {os.sched_getparam(0).sched_priority}{behind}"
