"""What all attacks are made of: where the broker is, connections, and floods of bytes over them."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

FLOODS = 8  # connections of a flood
CROWD = 4_000  # connections that are held
_TENDED = 50  # of them at a step
CHUNK = 64 << 10
PAUSE_S = 0.01
ANSWER_WITHIN_S = 5.0
WAIT_S = 0.05  # for a socket that is ready


@dataclass(frozen=True)
class Target:
    """HOST:PORT of each port."""

    tcp: str
    http: str
    https: str
    mqtt: str


Steps = Iterator[int]
Attack = Callable[[Target], Steps]


def connect(address: str, greeting: bytes = b"") -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S)
    if greeting:
        connection.sendall(greeting)
    return connection


class Flood:
    """Connections that send ``data`` over and over, as fast as they are read; one that is closed is opened again."""

    def __init__(self, make: Callable[[], socket.socket], data: bytes, connections: int, *, reads: bool = True) -> None:
        self._make, self._data = make, memoryview(data)
        self._wanted = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
        self._selector = selectors.DefaultSelector()
        for _ in range(connections):
            self._open()

    def _open(self) -> None:
        with suppress(OSError):  # refused: the others go on, which is what limits are for
            connection = self._make()
            connection.setblocking(False)
            self._selector.register(connection, self._wanted, 0)

    def step(self) -> int:
        """Once around; gives the bytes sent."""
        sent = 0
        for key, events in self._selector.select(WAIT_S):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                if events & selectors.EVENT_READ and not connection.recv(CHUNK):
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE:
                    some = connection.send(self._data[key.data : key.data + CHUNK])
                    self._selector.modify(connection, self._wanted, (key.data + some) % len(self._data))
                    sent += some
            except BlockingIOError:
                pass
            except OSError:
                self._selector.unregister(connection)
                connection.close()
                self._open()
        return sent


def endless(flood: Flood) -> Steps:
    while True:
        yield flood.step()


def held_open(make: Callable[[], socket.socket]) -> Steps:
    """Thousands of connections are held open, with a byte more now and then; those that are closed come again."""
    held = [make() for _ in range(CROWD)]
    at = 0
    while True:
        for _ in range(_TENDED):
            at = (at + 1) % len(held)
            with suppress(OSError):
                held[at].send(b"x")
            if is_closed(held[at]):
                held[at].close()
                with suppress(OSError):
                    held[at] = make()
        yield _TENDED
        time.sleep(PAUSE_S)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has said something, which is a refusal, or ended."""
    if connection.fileno() < 0:
        return True
    connection.setblocking(False)
    try:
        connection.recv(CHUNK)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
