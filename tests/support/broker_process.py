"""``python -m broker`` as a process of a test, and the little of nsqd's protocol that one says to it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.systems import free_addresses
from tests.support.other_process import WAIT_S, ask_http


def free_port() -> int:
    """Of loopback."""
    return int(free_addresses()[0].rpartition(":")[2])


class Process:
    """``python -m broker`` on free ports; ``lines``: what it said on standard error, once it has ended."""

    def __init__(self, data: Path, *flags: str, tcp: int | None = None, http_port: int | None = None) -> None:
        self.tcp, self.http = tcp or free_port(), http_port or free_port()
        command = [sys.executable, "-m", "broker", "--name", "b1", "--data-path", str(data)]
        command += ["--tcp-address", f"127.0.0.1:{self.tcp}", "--http-address", f"127.0.0.1:{self.http}", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []

    def wait_ready(self) -> None:
        """Until /ping answers."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                assert self.ask("GET", "/ping") == (200, b"OK")
            except ConnectionRefusedError:
                time.sleep(0.002)  # another process's port cannot signal us that it is open
                continue
            return
        raise AssertionError(f"the broker did not start: {self.wait_ended()}, {self.lines}")

    def wait_ended(self, number: int | None = None) -> int:
        """Exit status, after ``number`` was sent if one is given."""
        if number is not None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=WAIT_S)
        self.lines = err.splitlines()
        return self.process.returncode

    def ask(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        return ask_http(self.http, method, target, body)

    def ask_json(self, method: str, target: str, value: object = None) -> tuple[int, Any]:
        status, body = self.ask(method, target, None if value is None else json.dumps(value).encode())
        return status, json.loads(body)

    def topic(self, name: str) -> dict[str, Any]:
        _, stats = self.ask_json("GET", f"/stats?format=json&topic={name}")
        found: dict[str, Any] = stats["topics"][0]
        return found


@contextmanager
def broker(data: Path, *flags: str, **ports: int) -> Iterator[Process]:
    """A running broker; whatever happens in the block, its process ends with it."""
    process = Process(data, *flags, **ports)
    with ExitStack() as stack:
        stack.callback(process.process.stderr.close)  # type: ignore[union-attr]
        stack.callback(process.process.wait)
        stack.callback(process.process.kill)
        process.wait_ready()
        yield process


def refused(data: Path, *flags: str, **ports: int) -> tuple[int, list[str]]:
    """Exit status and lines of a broker that must not start."""
    process = Process(data, *flags, **ports)
    return process.wait_ended(), process.lines


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
