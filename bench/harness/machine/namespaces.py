"""A network of one's own: namespaces without names, joined by a pair of virtual Ethernet devices.

A namespace that has no name ends with the last process in it, and its devices with it: nothing is left behind,
whichever way a measurement ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from srtm.errors import Unavailable

_CLONE_NEWNET = 0x40000000
_T = TypeVar("_T")
CAPABILITIES: Mapping[str, int] = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}


def missing(effective: int, has_ip: bool) -> list[str]:
    """What a process with these effective capabilities lacks, by name; empty: nothing."""
    lacking = [name for name, number in CAPABILITIES.items() if not effective >> number & 1]
    return lacking + ["the command ip (iproute2)"] * (not has_ip)


def check_privileges() -> None:
    """Raises Unavailable naming what is missing."""
    lacking = missing(effective_capabilities(), shutil.which("ip") is not None)
    if lacking:
        raise Unavailable(f"own network namespaces and packet rings need {', '.join(lacking)}: run as root")


def effective_capabilities() -> int:
    """Of this process, as the kernel's bits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))


def enter() -> None:
    """From now on this thread, and what it starts, is in a network namespace of its own, with nothing but loopback.
    Call it before there are other threads. Raises Unavailable."""
    _unshare()
    ip("link", "set", "lo", "up")


def enter_existing(namespace: Path) -> None:
    """From now on this thread, and what it starts, is in that network namespace. Raises Unavailable."""
    try:
        opened = namespace.open()
    except OSError as error:
        raise Unavailable(f"network namespace {namespace}: {error.strerror}") from None
    with opened:
        if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), _CLONE_NEWNET) != 0:
            raise Unavailable(f"network namespace {namespace}: {os.strerror(ctypes.get_errno())}")


@contextmanager
def visiting(namespace: Path) -> Iterator[None]:
    """This thread, and what it starts meanwhile, is in that namespace while the block runs. Raises Unavailable."""
    home = Path("/proc/thread-self/ns/net")
    with home.open() as here:
        enter_existing(namespace)
        try:
            yield
        finally:
            enter_existing(Path(f"/proc/self/fd/{here.fileno()}"))


def inside(namespace: Path, work: Callable[[], _T]) -> _T:
    """What ``work`` gives, done by a thread of its own in that namespace: sockets and devices opened there stay there.
    Raises Unavailable."""
    return _in_thread(lambda: enter_existing(namespace), work)


def apart(work: Callable[[], _T]) -> _T:
    """As ``inside``, in a new namespace, which ends with the thread unless somebody holds it. Raises Unavailable."""
    return _in_thread(_unshare, work)


def _in_thread(go: Callable[[], None], work: Callable[[], _T]) -> _T:
    """A namespace belongs to a thread: the calling one stays where it is."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            go()
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _unshare() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        raise Unavailable(f"no network namespace of one's own: {os.strerror(ctypes.get_errno())}")


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
