"""``srtm doctor``: whether this machine is fit for the services, and what to do where it is not."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import socket
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from srtm.console.output import JsonOption, show
from srtm.errors import BadInput
from srtm.operations import machine_checks as checks
from srtm.operations.machine_checks import Finding

_PORTS = (4150, 4151, 4190)  # broker, its HTTP, distributor
_ROOT = Path("/")
# SO_TIMESTAMPING and its flags, linux/net_tstamp.h: receive, software, report as CMSG. The engine asks for the same.
_SO_TIMESTAMPING, _RX_SOFTWARE, _SOFTWARE = 37, 1 << 3, 1 << 4
_STAMP_TIMEOUT_S = 1.0  # bytes on loopback arrive within a millisecond
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized


def doctor(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Directory where data would be.")] = Path(),
    port: Annotated[
        list[int] | None,
        typer.Option(metavar="PORT", help="Port that must be free; may be repeated. Default: 4150, 4151, 4190."),
    ] = None,
    json_file: JsonOption = None,
) -> int:
    """Check this machine: ports, descriptors, clock, capabilities, kernel stamps, memory, processors, disk.

    Status 1 if something fails. A warning says what works less well.
    """
    wanted = tuple(dict.fromkeys(port or _PORTS))
    for each in wanted:
        if not 1 <= each <= 65_535:
            raise BadInput("port", each, "must be 1 to 65,535")
    findings = examine(data, wanted)
    show("doctor", [asdict(finding) for finding in findings], json_file, lambda console: _print(findings, console))
    return 1 if any(finding.state == "fail" for finding in findings) else 0


def examine(data: Path, wanted: tuple[int, ...], root: Path = _ROOT) -> list[Finding]:
    """Look at the machine whose ``/proc`` and ``/sys`` are below ``root``."""
    return [
        *checks.ports(_occupied(wanted), wanted),
        checks.descriptors(*(None if each == resource.RLIM_INFINITY else each for each in _descriptor_limits())),
        *checks.clock(_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"), _ntp()),
        *checks.capabilities(_capabilities(_text(root / "proc/self/status"))),
        checks.kernel_stamps(*_stamp()),
        *_memory(root),
        checks.processors(len(os.sched_getaffinity(0)), _quota(_line(root / "sys/fs/cgroup/cpu.max"))),
        checks.disk(str(data), *_disk(data)),
    ]


def _print(findings: list[Finding], console: Console) -> None:
    for finding in findings:
        console.print(f"{finding.state:<4}  {finding.check}: {finding.found}", soft_wrap=True)
        if finding.remedy:
            console.print(f"      {finding.remedy}", soft_wrap=True)
    counts = Counter(finding.state for finding in findings)
    console.print(", ".join(f"{counts[state]} {state}" for state in ("ok", "warn", "fail")))


def _occupied(wanted: tuple[int, ...]) -> dict[int, str]:
    found = {}
    for port in wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                in_use = error.errno == errno.EADDRINUSE
                found[port] = "something listens there" if in_use else str(error.strerror)
    return found


def _descriptor_limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _ntp() -> bool | None:
    """Whether the kernel's clock is synchronized; None: it does not say."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = adjtimex(ctypes.create_string_buffer(512))  # struct timex is 208 bytes; zeros: only read
    return None if state < 0 else state != _TIME_ERROR


def _capabilities(status: str) -> int | None:
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == "CapEff":
            return int(value.strip(), 16)
    return None


def _stamp() -> tuple[bool, str]:
    """Whether a byte over loopback comes with the kernel's stamp, and why not."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as out,
        ):
            came, _ = listener.accept()
            with came:
                came.settimeout(_STAMP_TIMEOUT_S)
                came.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
                out.sendall(b"x")
                _, ancillary, _, _ = came.recvmsg(1, 256)
    except OSError as error:
        return False, f"the kernel refuses ({error.strerror or error})"
    stamps = [kind for level, kind, _ in ancillary if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPING)]
    return bool(stamps), "bytes come without a stamp"


def _memory(root: Path) -> list[Finding]:
    lines = (line.partition(":") for line in _text(root / "proc/meminfo").splitlines())
    kilobytes = {key: int(value.split()[0]) for key, _, value in lines if value.strip()}
    available = kilobytes.get("MemAvailable")
    limit = _line(root / "sys/fs/cgroup/memory.max")
    return checks.memory(
        None if available is None else available * 1024,
        int(limit) if limit.isdigit() else None,
        (kilobytes.get("SwapTotal", 0) - kilobytes.get("SwapFree", 0)) * 1024,
    )


def _quota(cpu_max: str) -> float | None:
    """Return the cores of ``cpu.max``: "QUOTA PERIOD" in microseconds, or "max PERIOD"."""
    words = cpu_max.split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _disk(directory: Path) -> tuple[int | None, str]:
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return None, str(error.strerror)
    return free, "" if os.access(directory, os.W_OK | os.X_OK) else "cannot be written"


def _line(path: Path) -> str:
    return _text(path).strip()


def _text(path: Path) -> str:
    """Return a file of the kernel; "" where this kernel has none."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
