"""A broker as a process of a test, and the little of nsqd's protocol that one says to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.support.other_process import WAIT_S, ask_http
from tests.support.ports import free_port


class Process:
    """``command`` on free ports of loopback, or on those that are given; ``started``: how, as ``Popen`` takes it."""

    def __init__(
        self, command: Sequence[str], *flags: str, tcp: int | None = None, http_port: int | None = None, **started: Any
    ) -> None:
        self.tcp, self.http = tcp or free_port(), http_port or free_port()
        ports = [f"--tcp-address=127.0.0.1:{self.tcp}", f"--http-address=127.0.0.1:{self.http}"]
        self._log = os.memfd_create("standard error")
        self.process = subprocess.Popen(
            [*command, *ports, *flags], stdout=subprocess.DEVNULL, stderr=self._log, **started
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._log)

    @property
    def lines(self) -> list[str]:
        """What it has said on standard error until now."""
        # The file's position is the broker's, too: to be left where it is.
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode().splitlines()

    def wait_ready(self) -> None:
        """Until it answers by HTTP, whatever that be."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(ConnectionRefusedError):
                self.ask("GET", "/ping")
                return
            time.sleep(0.002)  # another process's port cannot signal us that it is open
        raise AssertionError(f"the broker did not start: {self.process.poll()}, {self.lines}")

    def wait_ended(self, number: int | None = None) -> int:
        """Exit status, after ``number`` was sent if one is given."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def ask(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        return ask_http(self.http, method, target, body)

    def ask_json(self, method: str, target: str, value: object = None) -> tuple[int, Any]:
        status, body = self.ask(method, target, None if value is None else json.dumps(value).encode())
        return status, json.loads(body)

    def topic(self, name: str) -> dict[str, Any]:
        _, stats = self.ask_json("GET", f"/stats?format=json&topic={name}")
        found: dict[str, Any] = stats["topics"][0]
        return found

    def metric(self, name: str) -> float:
        return metric_in(self.ask("GET", "/metrics")[1].decode(), name)

    def has_said(self, words: str) -> bool:
        return any(words in line for line in self.lines)


def process(data: Path, *flags: str, wrapped: Sequence[str] = (), **started: Any) -> Process:
    """``python -m broker``, behind the words of ``wrapped``; to be ended by a ``with``."""
    command = [*wrapped, sys.executable, "-m", "broker", "--name", "b1", "--data-path", str(data)]
    return Process(command, *flags, **started)


@contextmanager
def broker(data: Path, *flags: str, **started: Any) -> Iterator[Process]:
    """A running one; whatever happens in the block, its process ends with it."""
    with process(data, *flags, **started) as running:
        running.wait_ready()
        yield running


def refused(starting: Process) -> tuple[int, list[str]]:
    """Exit status and lines of one that must not start."""
    with starting:
        return starting.wait_ended(), starting.lines


def metric_in(text: str, name: str) -> float:
    """The value of a metric that has one, in the answer of /metrics."""
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


class Subscriber:
    """A consumer in a few lines of the protocol: enough to take messages and finish them."""

    def __init__(self, port: int, topic: str, channel: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.stream = self.socket.makefile("rb")
        self.socket.sendall(b"  V2" + f"SUB {topic} {channel}\nRDY 100\n".encode())

    def frame(self) -> tuple[int, bytes]:
        size = int.from_bytes(self.stream.read(4), "big")
        data = self.stream.read(size)
        return int.from_bytes(data[:4], "big"), data[4:]

    def body(self) -> bytes:
        while True:
            kind, data = self.frame()
            assert kind != 1, data
            if kind == 2:
                self.socket.sendall(b"FIN " + data[10:26] + b"\n")
                return data[26:]

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def publish(running: Process, publisher_id: str, count: int) -> None:
    """One MPUB, answered."""
    with socket.create_connection(("127.0.0.1", running.tcp), timeout=WAIT_S) as connection:
        stream = connection.makefile("rb")
        about = msgspec.json.encode({"client_id": publisher_id})
        connection.sendall(b"  V2IDENTIFY\n" + len(about).to_bytes(4, "big") + about)
        bodies = b"".join((4).to_bytes(4, "big") + b"body" for _ in range(count))
        body = count.to_bytes(4, "big") + bodies
        connection.sendall(b"MPUB t\n" + len(body).to_bytes(4, "big") + body)
        for _ in range(2):
            size = int.from_bytes(stream.read(4), "big")
            assert stream.read(size) == b"\x00\x00\x00\x00OK"
        stream.close()
