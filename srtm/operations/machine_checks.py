"""What ``srtm doctor`` judges: facts of a machine in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from srtm.text import figure

State = Literal["ok", "warn", "fail"]

_GB = 1e9  # bytes
_FEWEST_DESCRIPTORS = 1024  # a broker keeps some 60 for itself; below this few clients remain
_PLENTY_DESCRIPTORS = 65_536
_LEAST_MEMORY = 0.5 * _GB
_QUEUES = 1 << 30  # bytes: the default of --max-memory
_LEAST_DISK, _LITTLE_DISK = 0.2 * _GB, 2 * _GB
_CAP_NET_RAW, _CAP_SYS_NICE = 13, 23  # bits; linux/capability.h
# Clock sources whose reading needs no system call.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor. ``remedy``: what to do; "": nothing."""

    check: str
    state: State
    found: str
    remedy: str = ""


def ports(occupied: Mapping[int, str], wanted: Collection[int]) -> list[Finding]:
    """Judge the ports that services listen on. ``occupied``: {port: why it cannot be bound}."""
    free = [str(port) for port in wanted if port not in occupied]
    findings = [Finding("ports", "ok", f"free: {', '.join(free)}")] if free else []
    remedy = "fine if SRTM runs there; else choose another by --tcp-address, --http-address or --ports"
    return findings + [Finding("ports", "warn", f"{port}: {why}", remedy) for port, why in occupied.items()]


def descriptors(soft: int | None, hard: int | None) -> Finding:
    """Judge the limits of open files; None: no limit."""
    most = "no limit" if soft is None else f"{soft:,}"
    remedy = "LimitNOFILE=65536 in the unit, or ulimit -n 65536: each client takes one"
    if soft is None or soft >= _PLENTY_DESCRIPTORS:
        return Finding("descriptors", "ok", most)
    if hard is None or hard > soft:
        remedy += f" (the hard limit is {'none' if hard is None else f'{hard:,}'})"
    return Finding("descriptors", "fail" if soft < _FEWEST_DESCRIPTORS else "warn", most, remedy)


def clock(source: str, is_synchronized: bool | None) -> list[Finding]:
    """Judge the clock. ``source``: the kernel's clock source, "": not known; ``is_synchronized``: by NTP."""
    findings = [Finding("clock source", "ok", source or "not known here")]
    if source and source not in _FAST_CLOCKS:
        remedy = "each reading costs a system call: let the machine offer tsc or kvm-clock"
        findings = [Finding("clock source", "warn", source, remedy)]
    if is_synchronized is None:
        return [*findings, Finding("clock", "ok", "whether NTP sets it is not known here")]
    if is_synchronized:
        return [*findings, Finding("clock", "ok", "synchronized")]
    remedy = "run chrony or systemd-timesyncd: limits use a clock of their own, logs and certificates do not"
    return [*findings, Finding("clock", "warn", "not synchronized", remedy)]


def capabilities(effective: int | None) -> list[Finding]:
    """Judge the capabilities of this process, as a bit mask; None: not known."""
    if effective is None:
        return [Finding("capabilities", "ok", "not known here")]
    needs = {"CAP_NET_RAW": (_CAP_NET_RAW, "--arrival-clock packet"), "CAP_SYS_NICE": (_CAP_SYS_NICE, "--realtime")}
    return [
        Finding("capabilities", "ok", f"{name} is here: {option} works")
        if effective >> bit & 1
        else Finding("capabilities", "warn", f"no {name}", f"only {option} needs it: AmbientCapabilities={name}")
        for name, (bit, option) in needs.items()
    ]


def kernel_stamps(has_stamp: bool, why: str) -> Finding:
    """Judge whether the kernel says when bytes arrived. ``why``: what was tried without success."""
    if has_stamp:
        return Finding("kernel stamps", "ok", "arrivals are stamped by the kernel")
    remedy = "arrival instants are then those of reading, later under load: use Linux on the host, not an emulation"
    return Finding("kernel stamps", "warn", why, remedy)


def memory(available: int | None, limit: int | None, swap: int) -> list[Finding]:
    """Judge memory, in bytes. ``limit``: of the control group; None: no limit, not known."""
    if available is None:
        return [Finding("memory", "ok", "not known here")]
    room = available if limit is None else min(available, limit)
    found = f"{room / _GB:.1f} GB available" + ("" if limit is None else f", at most {limit / _GB:.1f} GB")
    findings = [Finding("memory", "ok", found)]
    if room < _LEAST_MEMORY:
        findings = [Finding("memory", "fail", found, "a broker needs at least 0.5 GB")]
    elif room < 2 * _QUEUES:
        remedy = "set a broker's --max-memory to half of it at most: 1 GiB is the default, for queues alone"
        findings = [Finding("memory", "warn", found, remedy)]
    if swap:
        remedy = "messages in swapped pages are late: swapoff, or MemorySwapMax=0 in the unit"
        findings.append(Finding("swap", "warn", f"{swap / _GB:.1f} GB", remedy))
    return findings


def processors(count: int, quota_cores: float | None) -> Finding:
    """Judge processors. ``quota_cores``: the quota of the control group; None: no quota."""
    if quota_cores is not None and quota_cores < count:
        remedy = "a quota stops the broker in the midst of a period, for up to 0.1 s: give whole processors (cpuset)"
        return Finding("processors", "warn", f"a quota of {figure(quota_cores, 6)} of {count}", remedy)
    if count < 2:
        return Finding("processors", "warn", "1", "give a broker two: one carries messages, one decides")
    return Finding("processors", "ok", str(count))


def disk(directory: str, free: int | None, problem: str) -> Finding:
    """Judge the directory of the data. ``free``: bytes; ``problem``: why nothing can be written there."""
    if problem or free is None:
        return Finding("disk", "fail", f"{directory}: {problem}", "name a directory that this user can write: --data")
    found = f"{directory}: {free / _GB:.1f} GB free"
    if free < _LITTLE_DISK:
        remedy = "queues that nobody reads go to disk; without room publishers are refused"
        return Finding("disk", "fail" if free < _LEAST_DISK else "warn", found, remedy)
    return Finding("disk", "ok", found)
