"""The control of ``bench hostile``: what an attacker costs the others by the processor that it takes, whatever it does.

It sends to itself over loopback, as an attacker sends to the broker: system calls and soft interrupts of the same kind.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator

CHUNK = 64 << 10
PAUSE_S = 0.001


def burn(share: float) -> Generator[int, None, None]:
    """Takes ``share`` of a processor for as long as somebody asks, where it gets that much; yields the bytes sent."""
    near, far = _connected()
    data = b"x" * CHUNK
    with near, far:
        began, used = time.monotonic(), time.process_time()
        while True:
            if time.process_time() - used >= share * (time.monotonic() - began):
                time.sleep(PAUSE_S)
                yield 0
                continue
            near.sendall(data)
            left = CHUNK
            while left:
                left -= len(far.recv(left))
            yield CHUNK


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * CHUNK)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * CHUNK)
    return near, far
