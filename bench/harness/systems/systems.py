"""Systems under test as child processes on loopback, and what the kernel says that they cost.

A system is ours alone for as long as its block lasts: own ports, own data folder, log beside it. It is ready when its
HTTP ``/ping`` answers; the floor, which has no HTTP, when its port takes a connection.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import trio

from bench.harness.machine.checkout import ROOT, THIS, Build
from srtm.cluster.cluster_file import pick_addresses
from srtm.concurrency.background import background_nursery
from srtm.errors import Unavailable

OURS = "srtm"
PEERS = ROOT / ".peers"
FLOOR = ROOT / "target" / "release" / "srtm-floor"
CPUCLOCK_SCHED = 2
POLL_S = 0.002  # a foreign process has no other sign of being ready than its port
READY_WITHIN_S = 20.0
_GIVEN: set[str] = set()


def cpu_s(pid: int, name: str) -> float:
    """User + system time of a process so far, all threads, to the nanosecond: its CPU clock, whose number the kernel
    forms from the pid (clock_getcpuclockid(3)). /proc counts in ticks of 10 ms. Raises Unavailable."""
    try:
        return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    except OSError as error:
        raise Unavailable(f"{name} (process {pid}) is gone") from error


@dataclass(frozen=True)
class System:
    """A running broker, ours or a peer's."""

    name: str
    pid: int
    tcp_address: str
    http_address: str

    def cpu_s(self) -> float:
        return cpu_s(self.pid, self.name)

    def resident_bytes(self) -> int:
        """Memory of the process in RAM (proc(5): field 2 of statm)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bare_broker(folder: Path, *options: str, build: Build = THIS) -> AbstractAsyncContextManager[System]:
    """Our broker on its own, without a distributor: a drop-in nsqd."""
    tcp_address, http_address = free_addresses()
    command = bare_broker_command(folder, tcp_address, http_address, *options, build=build)
    return running(OURS, command, folder, tcp_address, http_address, root=build.root)


def nsqd(folder: Path, *options: str) -> AbstractAsyncContextManager[System]:
    """The real nsqd with its defaults, found where ``make peers`` puts it. Raises Unavailable."""
    return _nsqd("nsqd", [peer("nsqd")], folder, options, ROOT)


def nsqd_in_place(folder: Path, *options: str, build: Build = THIS) -> AbstractAsyncContextManager[System]:
    """Our broker in nsqd's place: the flags of ``nsqd`` here, word for word."""
    return _nsqd(OURS, [*build.program, "nsqd"], folder, options, build.root)


def _nsqd(
    name: str, program: list[str], folder: Path, options: Sequence[str], root: Path
) -> AbstractAsyncContextManager[System]:
    tcp_address, http_address = free_addresses()
    where = ["--tcp-address", tcp_address, "--http-address", http_address, "--data-path", str(folder)]
    command = [*program, *where, "--broadcast-address", "127.0.0.1", "--log-level", "warn", *options]
    return running(name, command, folder, tcp_address, http_address, root=root)


def floor(folder: Path) -> AbstractAsyncContextManager[System]:
    """The bare epoll loop of ``bench/floor``, found where ``make floor`` puts it. Raises Unavailable."""
    tcp_address, _ = free_addresses()
    ready = partial(takes_connections, tcp_address)
    return running("floor", [floor_program(), tcp_address], folder, tcp_address, "", ready)


def bare_broker_command(
    folder: Path, tcp_address: str, http_address: str, *options: str, build: Build = THIS
) -> list[str]:
    where = ["--tcp-address", tcp_address, "--http-address", http_address, "--data-path", str(folder)]
    return [*build.program, "broker", "--name", folder.name, *where, *options]


def peer(program: str) -> str:
    """Path of a peer's program. Raises Unavailable naming what builds it."""
    path = PEERS / program
    if not path.exists():
        raise Unavailable(f"{program} is not here: run `make peers` (needs the Go toolchain), then again")
    return str(path)


def floor_program(path: Path = FLOOR) -> str:
    """Raises Unavailable naming what builds it."""
    if not path.exists():
        raise Unavailable(f"{path.name} is not here: run `make floor`, then again")
    return str(path)


def free_addresses() -> tuple[str, str]:
    """Two loopback addresses that nobody listens on now. None is given twice: it is free until its server starts."""
    while True:
        first, second = pick_addresses(2, {})
        if _GIVEN.isdisjoint((first, second)):
            _GIVEN.update((first, second))
            return first, second


def answers_ping(http_address: str) -> bool:
    """Whether ``/ping`` answers 200 now. Blocks at most a moment: loopback either takes or refuses."""
    host, _, port = http_address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0) as connection:
            connection.sendall(b"GET /ping HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            return b" 200 " in connection.recv(64)
    except (ConnectionError, TimeoutError):
        return False


def takes_connections(tcp_address: str) -> bool:
    host, _, port = tcp_address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except (ConnectionError, TimeoutError):
        return False


@asynccontextmanager
async def running(
    name: str,
    command: Sequence[str],
    folder: Path,
    tcp_address: str,
    http_address: str,
    ready: Callable[[], bool] | None = None,
    *,
    root: Path = ROOT,
) -> AsyncIterator[System]:
    """``root``: where it is started."""
    with _log_of(folder) as log:
        async with background_nursery() as nursery:
            options = {"stdout": log, "stderr": subprocess.STDOUT, "check": False, "cwd": root, "env": _environment()}
            start = partial(trio.run_process, command, deliver_cancel=_end, **options)
            process: trio.Process = await nursery.start(start)
            await _wait_ready(name, process, ready or partial(answers_ping, http_address), log.name)
            yield System(name, process.pid, tcp_address, http_address)


async def _end(process: trio.Process) -> None:
    """Without grace: what it holds is nobody's, and a broker that saves it would take the next one's processor."""
    process.kill()


def _environment() -> dict[str, str]:
    """Ours without what would make a broker join a cluster, or import another checkout than it is started in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SRTM_", "PYTHONPATH"))}


def _log_of(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.with_suffix(".log").open("wb")


def _last_words(log_path: str) -> str:
    return Path(log_path).read_text(errors="replace").strip()[-500:] or "it said nothing"


async def _wait_ready(name: str, process: trio.Process, ready: Callable[[], bool], log_path: str) -> None:
    deadline = trio.current_time() + READY_WITHIN_S
    while not ready():
        if process.poll() is not None or trio.current_time() > deadline:
            raise Unavailable(f"{name} did not come up: {_last_words(log_path)}")
        await trio.sleep(POLL_S)
