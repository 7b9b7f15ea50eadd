"""A broker's process in a directory of its own: nsqd, or ours under the same flags. It can be stopped and started
again on what it kept."""

from __future__ import annotations

import ipaddress
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from bench.harness.machine.checkout import ROOT
from bench.harness.systems.systems import PEERS, free_addresses, peer
from srtm.errors import Unavailable

COMMANDS = {"nsqd": [str(PEERS / "nsqd")], "srtm": [sys.executable, "-m", "srtm", "nsqd"]}
CERTIFICATES = ROOT / "tests" / "certificates"
START_S = 40.0
STOP_S = 15.0
POLL_S = 0.01  # a foreign process has no other sign of being ready than its port
_STARTS = itertools.count()


def programs_are_here() -> None:
    """Raises Unavailable naming what builds them."""
    peer("nsqd")


class Node:
    """``flags`` besides addresses and data path."""

    def __init__(self, system: str, folder: Path, flags: Sequence[str]) -> None:
        self.system = system
        self.folder = folder
        self.tcp_address, self.http_address = free_addresses()
        self.https_address, _ = free_addresses()
        self._flags = list(flags)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    async def start(self) -> None:
        """Until it answers. Raises Unavailable."""
        self._process = process = self._begin()
        with trio.move_on_after(START_S):
            while process.poll() is None:
                if await trio.to_thread.run_sync(answers, self.http_address):
                    return
                await trio.sleep(POLL_S)
        raise Unavailable(f"{self.system} did not come up: {self.log.read_text(errors='replace')[-500:]}")

    def _begin(self) -> subprocess.Popen[bytes]:
        where = [
            f"--tcp-address={self.tcp_address}",
            f"--http-address={self.http_address}",
            f"--https-address={self.https_address}",
            f"--data-path={self.folder}",
            "--broadcast-address=127.0.0.1",
        ]
        with self.log.open("ab") as log:
            command = [*COMMANDS[self.system], *where, *self._flags]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    async def stop(self, *signals: int) -> str:
        """How these signals, one after the other, end it."""
        process = self._running()
        for number in signals or (signal.SIGTERM,):
            process.send_signal(number)
        try:
            return f"status {await trio.to_thread.run_sync(process.wait, STOP_S)}"
        except subprocess.TimeoutExpired:
            return "goes on"

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise Unavailable(f"{self.system} was not started")
        return self._process


def answers(http_address: str) -> bool:
    """Whether there is an answer now; where TLS is required it is a refusal, which will do. Blocks a moment at most."""
    host, _, port = http_address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2.0) as connection:
            connection.sendall(b"GET /ping HTTP/1.1\r\nHost: nsqd\r\nConnection: close\r\n\r\n")
            return connection.recv(4) == b"HTTP"
    except (ConnectionError, TimeoutError):
        return False


@asynccontextmanager
async def running(system: str, folder: Path, flags: Sequence[str]) -> AsyncIterator[Node]:
    node = Node(system, folder, flags)
    try:
        await node.start()
        yield node
    finally:
        node.kill()


def _host() -> str:
    """A loopback address that no other start listens at: whoever answers there is the one that was started."""
    return str(ipaddress.IPv4Address("127.64.0.1") + (os.getpid() % 1024 << 12) + next(_STARTS))


def ended(system: str, arguments: Sequence[str], folder: Path) -> tuple[int, str, str] | None:
    """Exit status, standard output and standard error of a start that ends by itself; None: it serves."""
    tcp_address, http_address = (address.replace("127.0.0.1", _host()) for address in free_addresses())
    where = [f"--tcp-address={tcp_address}", f"--http-address={http_address}", f"--data-path={folder}"]
    folder.mkdir(parents=True, exist_ok=True)
    command = [*COMMANDS[system], *where, "--https-address=127.0.0.1:0", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
        try:
            return _end_of(process, http_address)
        finally:
            process.kill()


def _end_of(process: subprocess.Popen[str], http_address: str) -> tuple[int, str, str] | None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            out, err = process.communicate(timeout=POLL_S)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            if answers(http_address):
                return None
    raise Unavailable(f"{process.args!r} neither ends nor answers")
