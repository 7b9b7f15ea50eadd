"""Reads the system's files on processors; ``broker.runtime.cpu_throttling`` interprets them."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path, PurePosixPath

from broker.runtime.cpu_throttling import (
    Quota,
    Reading,
    ThrottlingWindow,
    cores_of_max,
    cores_of_v1,
    group_directories,
    quota,
    ticks,
)
from srtm.control import BrokerMachine, Throttling

PROC = Path("/proc")


class Processors:
    """``proc`` and ``groups`` are the kernel's mount points. A missing file reads as empty."""

    def __init__(self, proc: Path = PROC, groups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._groups = groups
        self._window = ThrottlingWindow()
        self._latest: Throttling | None = None
        self._read_ns = 0

    def throttling(self) -> Throttling:
        """The throttling within the last second. Any number of callers cost one reading a second."""
        now_ns = time.monotonic_ns()
        if self._latest is None or now_ns - self._read_ns >= 1_000_000_000:
            self._latest, self._read_ns = self._window.note(self._read(), now_ns), now_ns
        return self._latest

    def _read(self) -> Reading:
        places = group_directories(_text(self._proc / "self/cgroup"))
        quotas = (self._quota(place, is_v2) for place, is_v2 in places)
        steal, whole = ticks(_text(self._proc / "stat"))
        return Reading(tuple(found for found in quotas if found is not None), steal, whole)

    def _quota(self, place: PurePosixPath, is_v2: bool) -> Quota | None:
        folder = self._groups / place
        if is_v2:
            cores = cores_of_max(_text(folder / "cpu.max"))
        else:
            cores = cores_of_v1(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))
        return quota(_text(folder / "cpu.stat"), cores)


def machine_here(proc: Path = PROC) -> BrokerMachine:
    """The machine that this process runs on."""
    return BrokerMachine(
        cores=len(os.sched_getaffinity(0)), kernel=platform.release(), cpu=cpu_model(_text(proc / "cpuinfo"))
    )


def cpu_model(cpuinfo: str) -> str:
    """The model in ``/proc/cpuinfo``; the architecture if it has no name."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
