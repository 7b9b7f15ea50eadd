"""Systems under test as child processes on loopback, and what the kernel says that they cost.

A system is ours alone for as long as its block lasts: own ports, own data folder, log beside it. It is ready when its
HTTP ``/ping`` answers.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import trio

from srtm.errors import Unavailable
from srtm.nursery import background_nursery

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"
POLL_S = 0.002  # a foreign process has no other sign of being ready than its port
READY_WITHIN_S = 20.0


@dataclass(frozen=True)
class System:
    """A running broker, ours or a peer's."""

    name: str
    pid: int
    tcp_address: str
    http_address: str

    def cpu_s(self) -> float:
        """User + system time of the process so far, all threads (proc(5): fields 14 and 15 of stat)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory of the process in RAM (proc(5): field 2 of statm)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def bare_broker(folder: Path, *options: str) -> AsyncIterator[System]:
    """Our broker on its own, without a distributor: a drop-in nsqd."""
    tcp_address, http_address = free_addresses()
    command = bare_broker_command(folder, tcp_address, http_address, *options)
    async with _running("srtm", command, folder, tcp_address, http_address) as system:
        yield system


@asynccontextmanager
async def nsqd(folder: Path, *options: str) -> AsyncIterator[System]:
    """The real nsqd with its defaults, found where ``make peers`` puts it."""
    tcp_address, http_address = free_addresses()
    where = ["--tcp-address", tcp_address, "--http-address", http_address, "--data-path", str(folder)]
    command = [peer("nsqd"), *where, "--broadcast-address", "127.0.0.1", "--log-level", "warn", *options]
    async with _running("nsqd", command, folder, tcp_address, http_address) as system:
        yield system


def bare_broker_command(folder: Path, tcp_address: str, http_address: str, *options: str) -> list[str]:
    where = ["--tcp-address", tcp_address, "--http-address", http_address, "--data-path", str(folder)]
    return [sys.executable, "-m", "srtm", "broker", "--name", folder.name, *where, *options]


def peer(program: str) -> str:
    """Path of a peer's program. Raises Unavailable naming what builds it."""
    path = PEERS / program
    if not path.exists():
        raise Unavailable(f"{program} is not here: run `make peers` (needs the Go toolchain), then again")
    return str(path)


def free_addresses() -> tuple[str, str]:
    """Two loopback addresses that nobody listens on now."""
    with socket.socket() as one, socket.socket() as other:
        for listener in (one, other):
            listener.bind(("127.0.0.1", 0))
        first, second = (f"127.0.0.1:{listener.getsockname()[1]}" for listener in (one, other))
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


@asynccontextmanager
async def _running(
    name: str, command: Sequence[str], folder: Path, tcp_address: str, http_address: str
) -> AsyncIterator[System]:
    with _log_of(folder) as log:
        async with background_nursery() as nursery:
            options = {"stdout": log, "stderr": subprocess.STDOUT, "check": False, "cwd": ROOT, "env": _environment()}
            start = partial(trio.run_process, command, **options)
            process: trio.Process = await nursery.start(start)
            await _wait_ready(name, process, http_address, log.name)
            yield System(name, process.pid, tcp_address, http_address)


def _environment() -> dict[str, str]:
    """Ours without what would make a broker join a cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SRTM_")}


def _log_of(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.with_suffix(".log").open("wb")


def _last_words(log_path: str) -> str:
    return Path(log_path).read_text(errors="replace").strip()[-500:] or "it said nothing"


async def _wait_ready(name: str, process: trio.Process, http_address: str, log_path: str) -> None:
    deadline = trio.current_time() + READY_WITHIN_S
    while not answers_ping(http_address):
        if process.poll() is not None or trio.current_time() > deadline:
            raise Unavailable(f"{name} did not answer on {http_address}: {_last_words(log_path)}")
        await trio.sleep(POLL_S)
