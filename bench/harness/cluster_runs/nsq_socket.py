"""NSQ connections as plain blocking sockets, for measurements that need thousands of idle ones or exact instants.

Only what those need: IDENTIFY without negotiation, and the frame that answers.
"""

from __future__ import annotations

import socket
import struct

from srtm import protocol as wire
from srtm.errors import PeerError

OK = (0, b"OK")
ANSWER_WITHIN_S = 10.0


def connect(address: str, client_id: str, **settings: object) -> socket.socket:
    """A connection that has said who it is and gets no heartbeats; ``settings``: more of IDENTIFY, or something else.
    Raises OSError, PeerError."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(wire.MAGIC + wire.identify({"client_id": client_id, "heartbeat_interval": -1, **settings}))
    expect_ok(connection)
    return connection


def expect_ok(connection: socket.socket) -> None:
    """Read one frame. Raises PeerError unless it is ``OK``."""
    size = struct.unpack(">I", _exactly(connection, 4))[0]
    frame = _exactly(connection, size)
    answer = struct.unpack(">I", frame[:4])[0], frame[4:]
    if answer != OK:
        raise PeerError(f"the broker answered {answer[1]!r}")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise PeerError("the broker closed the connection")
        data += part
    return data
