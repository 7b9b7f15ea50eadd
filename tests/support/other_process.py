"""What a test asks of a process that cannot signal it, each wait with an end."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

WAIT_S = 40.0  # for whatever happens within milliseconds on a machine that has nothing else to do


def ask_http(port: int, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of the answer, by a connection of its own to that port on loopback. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_until(what: str, done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)
