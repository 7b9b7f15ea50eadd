"""A broker that runs out of descriptors serves those that it has, says so, and takes the others as some close."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.broker_process import Process, broker, metric_in
from tests.support.other_process import WAIT_S, wait_until

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

DESCRIPTORS = 64
CONNECTIONS = 100  # more than it has descriptors
PUBLISH = b"PUB t\n\0\0\0\x01x"
OK = b"\0\0\0\x06\0\0\0\0OK"


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def read(asked: http.client.HTTPConnection, name: str) -> float:
    """A metric, by that one connection: for another the broker has no descriptor."""
    asked.request("GET", "/metrics")
    return metric_in(asked.getresponse().read().decode(), name)


def connect(running: Process) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.tcp), timeout=WAIT_S)
    connection.sendall(b"  V2")
    return connection


def publish(connection: socket.socket) -> None:
    connection.sendall(PUBLISH)
    answer = b""
    while len(answer) < len(OK):
        part = connection.recv(len(OK) - len(answer))
        assert part, "the connection was closed"
        answer += part
    assert answer == OK


def test_a_broker_without_descriptors_serves_on_says_so_and_accepts_again(tmp_path: Path) -> None:
    failures = "srtm_broker_accept_failures_total"
    flags = ["--max-connections-per-address", str(CONNECTIONS)]  # all of them come from one
    with ExitStack() as held:
        running = held.enter_context(broker(tmp_path, *flags, preexec_fn=few_descriptors))
        asked = held.enter_context(closing(http.client.HTTPConnection("127.0.0.1", running.http, timeout=WAIT_S)))
        read(asked, failures)  # what Python loads for it takes descriptors once
        first = held.enter_context(connect(running))
        publish(first)
        others = [held.enter_context(connect(running)) for _ in range(CONNECTIONS)]
        wait_until("it runs out", lambda: read(asked, failures) > 0)

        publish(first)
        assert running.has_said("no room for more connections")

        # It looks again ten times a second, not without end.
        before, begin = read(asked, failures), time.monotonic()
        wait_until("three looks", lambda: read(asked, failures) >= before + 3)
        elapsed_s = time.monotonic() - begin
        assert read(asked, failures) - before <= 10 * elapsed_s + 5

        connected = read(asked, "srtm_broker_connections")
        assert connected < DESCRIPTORS
        for connection in others[:80]:
            connection.close()
        publish(others[-1])
        publish(first)
        assert running.process.poll() is None
        assert sum("no room for more connections" in line for line in running.lines) == 1
