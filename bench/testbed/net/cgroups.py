"""A host's part of the processors: one control group a host and controller, cgroup v1 or v2.

Groups are made right below the root of the hierarchy, where v2 lets groups have processes and children apart. Nothing
that is there already is changed: a v2 controller that is not enabled there is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.machine.host import CGROUPS
from bench.testbed.net.layout import Cpu, Host
from srtm.errors import BadInput, Unavailable

_PERIOD_US = 10_000  # a quota that stops a host for tens of ms at a time would be all that a latency shows


@dataclass(frozen=True)
class Cgroups:
    """Where groups of a controller can be made; ``folder`` None: nowhere, and ``text`` says why."""

    folder: Path | None
    version: int
    text: str


def cgroups_for(controller: str, cgroups: Path = CGROUPS) -> Cgroups:
    """``controller``: cpu, cpuset."""
    v1 = cgroups / controller
    if (v1 / "tasks").exists():
        return _writable(v1, 1)
    v2 = next((folder for folder in (cgroups, cgroups / "unified") if (folder / "cgroup.controllers").exists()), None)
    if v2 is None:
        return Cgroups(None, 0, f"no cgroup hierarchy with {controller} under {cgroups}")
    if controller not in (v2 / "cgroup.subtree_control").read_text().split():
        return Cgroups(None, 2, f"{controller} is not enabled in {v2 / 'cgroup.subtree_control'}")
    return _writable(v2, 2)


def _writable(folder: Path, version: int) -> Cgroups:
    if not os.access(folder, os.W_OK):
        return Cgroups(None, version, f"{folder} cannot be written")
    return Cgroups(folder, version, f"cgroup v{version}")


def settings(cpu: Cpu, controller: str, version: int) -> list[tuple[str, str]]:
    """(file, content) in order, for a new group. Pure."""
    if controller == "cpuset":
        return [("cpuset.cpus", cpu.cpus)] if cpu.cpus else []
    if cpu.quota is None:
        return []
    quota_us = round(cpu.quota * _PERIOD_US)
    if version == 2:
        return [("cpu.max", f"{quota_us} {_PERIOD_US}")]
    return [("cpu.cfs_period_us", f"{_PERIOD_US}"), ("cpu.cfs_quota_us", f"{quota_us}")]


def make_groups(host: Host, name: str, cgroups: Path = CGROUPS) -> list[Path]:
    """The groups that the processes of ``host`` are to be in, new. Raises BadInput (processors that are not there),
    Unavailable."""
    made = []
    for controller in ("cpu", "cpuset"):
        where = cgroups_for(controller, cgroups)
        asked = settings(host.cpu, controller, where.version)
        if not asked:
            continue
        if where.folder is None:
            raise Unavailable(where.text)
        group = where.folder / name
        group.mkdir(exist_ok=True)
        if controller == "cpuset" and where.version == 1:
            asked = [("cpuset.mems", (where.folder / "cpuset.mems").read_text().strip()), *asked]
        _set(group, asked, host)
        made.append(group)
    return made


def _set(group: Path, asked: Sequence[tuple[str, str]], host: Host) -> None:
    for file, content in asked:
        try:
            (group / file).write_text(content)
        except OSError as error:
            raise BadInput(f"{host.name}: {file}", content, f"the kernel does not take it ({error.strerror})") from None


def groups_below(cgroups: Path = CGROUPS) -> Iterator[Path]:
    """Every group that could be a host's."""
    for folder in {where.folder for where in (cgroups_for(one, cgroups) for one in ("cpu", "cpuset"))}:
        if folder is not None:
            yield from (entry for entry in folder.iterdir() if entry.is_dir())
