"""A broker that runs out of descriptors serves those that it has, says so, and takes the others as some close."""

from __future__ import annotations

import http.client
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.systems import free_addresses
from tests.support.other_process import WAIT_S, wait_until

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

DESCRIPTORS = 64
CONNECTIONS = 100  # more than it has descriptors
PUBLISH = b"PUB t\n\0\0\0\x01x"
OK = b"\0\0\0\x06\0\0\0\0OK"


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


class Broker:
    """A process with ``DESCRIPTORS`` descriptors. Its HTTP is asked on one connection: for another it has none."""

    def __init__(self, folder: Path) -> None:
        self.tcp_address, http_address = free_addresses()
        self.log = folder / "log"
        command = [sys.executable, "-m", "broker", "--name", "b", "--data-path", str(folder)]
        command += ["--tcp-address", self.tcp_address, "--http-address", http_address]
        command += ["--max-connections-per-address", str(CONNECTIONS)]  # all of them come from one
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, preexec_fn=few_descriptors)
        self.http = http.client.HTTPConnection(*http_address.split(":"), timeout=WAIT_S)

    def answers(self) -> bool:
        try:
            return self.get("/ping") == "OK"
        except ConnectionRefusedError:
            self.http.close()
            return False

    def get(self, path: str) -> str:
        self.http.request("GET", path)
        return self.http.getresponse().read().decode()

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def connect(self) -> socket.socket:
        host, port = self.tcp_address.split(":")
        connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
        connection.sendall(b"  V2")
        return connection


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    with ExitStack() as stack:
        stack.callback(made.process.wait)
        stack.callback(made.process.kill)
        stack.callback(made.http.close)
        wait_until("the broker answers", made.answers)
        yield made


def publish(connection: socket.socket) -> None:
    connection.sendall(PUBLISH)
    answer = b""
    while len(answer) < len(OK):
        part = connection.recv(len(OK) - len(answer))
        assert part, "the connection was closed"
        answer += part
    assert answer == OK


def test_a_broker_without_descriptors_serves_on_says_so_and_accepts_again(broker: Broker) -> None:
    failures = "srtm_broker_accept_failures_total"
    with ExitStack() as held:
        broker.metric(failures)  # what Python loads for it takes descriptors once
        first = held.enter_context(broker.connect())
        publish(first)
        others = [held.enter_context(broker.connect()) for _ in range(CONNECTIONS)]
        wait_until("it runs out", lambda: broker.metric(failures) > 0)

        publish(first)
        assert "no room for more connections" in broker.log.read_text()

        # It looks again ten times a second, not without end.
        before, begin = broker.metric(failures), time.monotonic()
        wait_until("three looks", lambda: broker.metric(failures) >= before + 3)
        elapsed_s = time.monotonic() - begin
        assert broker.metric(failures) - before <= 10 * elapsed_s + 5

        connected = broker.metric("srtm_broker_connections")
        assert connected < DESCRIPTORS
        for connection in others[:80]:
            connection.close()
        publish(others[-1])
        publish(first)
        assert broker.process.poll() is None
        assert broker.log.read_text().count("no room for more connections") == 1
