"""A network of one's own: namespaces without names, joined by a pair of virtual Ethernet devices.

A namespace that has no name ends with the last process in it, and its devices with it: nothing is left behind,
whichever way a measurement ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from srtm.errors import Unavailable

_CLONE_NEWNET = 0x40000000
CAPABILITIES: Mapping[str, int] = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}


def missing(effective: int, has_ip: bool) -> list[str]:
    """What a process with these effective capabilities lacks, by name; empty: nothing."""
    lacking = [name for name, number in CAPABILITIES.items() if not effective >> number & 1]
    return lacking + ["the command ip (iproute2)"] * (not has_ip)


def check_privileges() -> None:
    """Raises Unavailable naming what is missing."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    lacking = missing(effective, shutil.which("ip") is not None)
    if lacking:
        raise Unavailable(f"own network namespaces and packet rings need {', '.join(lacking)}: run as root")


def enter() -> None:
    """From now on this thread, and what it starts, is in a network namespace of its own, with nothing but loopback.
    Call it before there are other threads. Raises Unavailable."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise Unavailable(f"no network namespace of one's own: {os.strerror(ctypes.get_errno())}")
    ip("link", "set", "lo", "up")


def ip(*words: str) -> None:
    """Runs ``ip WORDS`` in the present namespace. Raises Unavailable with what it said."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")


def join(pid: int, device: str, far_device: str) -> None:
    """A new pair of devices: ``device`` here, ``far_device`` in the namespace of process ``pid``. Raises
    Unavailable."""
    ip("link", "add", device, "type", "veth", "peer", "name", far_device, "netns", str(pid))


def set_up(device: str, address: str) -> None:
    """``address`` with its prefix length. Raises Unavailable."""
    ip("addr", "add", address, "dev", device)
    ip("link", "set", device, "up")
