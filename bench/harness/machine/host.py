"""The machine that something was measured on, and what others took of its processors meanwhile.

CPU quotas and steal are easily mistaken for a broker's latency (nsq #1016).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from broker.runtime.cpu_throttling import ticks

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a result was measured on."""

    cores: int  # that this process may run on
    kernel: str
    machine: str
    python: str
    quota_cores: float | None  # CPU quota of the cgroup; None: no limit

    @classmethod
    def here(cls) -> Host:
        return cls(
            cores=len(os.sched_getaffinity(0)),
            kernel=platform.release(),
            machine=platform.machine(),
            python=platform.python_version(),
            quota_cores=quota_cores(),
        )


class Disturbance(msgspec.Struct, frozen=True):
    """CPU time that others took, counted since some start of its own: read before and after, and subtract."""

    steal_s: float  # of the hypervisor, all cores (proc(5): stat)
    throttled_s: float  # by the CPU quota of the cgroup
    processors_s: float  # time that went by, all cores
    throttled_periods: int  # of the quota, those in which it was used up

    @classmethod
    def now(cls, proc: Path = PROC, cgroups: Path = CGROUPS) -> Disturbance:
        stolen, all_of_them = ticks((proc / "stat").read_text())
        throttled_s, throttled_periods = _throttled(proc, cgroups)
        a_second = os.sysconf("SC_CLK_TCK")
        return cls(stolen / a_second, throttled_s, all_of_them / a_second, throttled_periods)

    def since(self, earlier: Disturbance) -> Disturbance:
        now, then = msgspec.structs.astuple(self), msgspec.structs.astuple(earlier)
        return Disturbance(*(one - other for one, other in zip(now, then, strict=True)))


def quota_cores(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """The smallest quota from our cgroup up to the root (cgroup v2 ``cpu.max``, v1 ``cpu.cfs_*``); None: no limit."""
    quotas = [quota for folder in _cpu_cgroups(proc, cgroups) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _quota_of(folder: Path) -> float | None:
    v1 = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    limits = _words(folder / "cpu.max") or [word for name in v1 for word in _words(folder / name)]
    return int(limits[0]) / int(limits[1]) if len(limits) == 2 and limits[0] not in ("max", "-1") else None


def _throttled(proc: Path, cgroups: Path) -> tuple[float, int]:
    """Seconds and periods, of our cgroup and those around it: each counts its own quota, and stops all that is in it.
    In a container our cgroup may have no folder of its name: what the container sees begins further up."""
    throttled_s, periods = 0.0, 0
    for folder in _cpu_cgroups(proc, cgroups):
        words = _words(folder / "cpu.stat")
        stat = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        throttled_s += stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
        periods += stat.get("nr_throttled", 0)
    return throttled_s, periods


def _cpu_cgroups(proc: Path, cgroups: Path) -> Sequence[Path]:
    """The folder of our cgroup in the hierarchy that has the cpu controller, then its ancestors, up to the mount."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mount = cgroups / controllers if controllers else cgroups
        if "cpu" not in controllers.split(",") and not (
            controllers == "" and (cgroups / "cgroup.controllers").exists()
        ):
            continue
        own = mount / path.lstrip("/")
        return [folder for folder in (own, *own.parents) if folder.is_relative_to(mount)]
    return []


def _words(file: Path) -> list[str]:
    """Nothing where there is no such file: the root of a hierarchy has no limits."""
    try:
        return file.read_text().split()
    except FileNotFoundError:
        return []
