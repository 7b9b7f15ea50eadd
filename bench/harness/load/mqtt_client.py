"""Packets of MQTT 3.1.1 and 5.0 as bytes, and a blocking client for what a bench sets up before it measures.

Nothing here is measured: who publishes and reads under a clock is the load generator.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP = 1, 2, 3, 4, 8, 9, 12, 13
ANSWER_WITHIN_S = 60.0
CLEAN, WILL = 0x02, 0x04
CHUNK = 256 << 10


def packet(kind: int, rest: bytes, flags: int = 0) -> bytes:
    """A whole packet: type and flags, the length in bytes of seven bits, the rest."""
    length, left = bytearray(), len(rest)
    while left > 0x7F:
        length.append(0x80 | left & 0x7F)
        left >>= 7
    length.append(left)
    return bytes([kind << 4 | flags]) + bytes(length) + rest


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def connect_packet(client_id: bytes, *, clean: bool = True, will: tuple[bytes, bytes] | None = None) -> bytes:
    """3.1.1, no keep-alive. ``will``: topic and payload, of QoS 0."""
    flags = (CLEAN if clean else 0) | (WILL if will else 0)
    left = b"" if will is None else text(will[0]) + text(will[1])
    return packet(CONNECT, text(b"MQTT") + bytes([4, flags]) + bytes(2) + text(client_id) + left)


def connect_packet_5(client_id: bytes) -> bytes:
    """5.0, a clean start, no keep-alive, no properties."""
    return packet(CONNECT, text(b"MQTT") + bytes([5, CLEAN]) + bytes(2) + bytes(1) + text(client_id))


def subscribe_packet(number: int, patterns: Iterable[bytes], qos: int = 0) -> bytes:
    """3.1.1."""
    wanted = b"".join(text(pattern) + bytes([qos]) for pattern in patterns)
    return packet(SUBSCRIBE, number.to_bytes(2, "big") + wanted, flags=2)


def publish_packet(
    name: bytes, payload: bytes, *, qos: int = 0, number: int = 1, retain: bool = False, properties: bytes | None = None
) -> bytes:
    """``properties``: of 5.0, with their length before them; None: 3.1.1."""
    identifier = number.to_bytes(2, "big") if qos else b""
    return packet(PUBLISH, text(name) + identifier + (properties or b"") + payload, flags=qos << 1 | retain)


class Client:
    """A connection whose answers are waited for. Raises OSError where none comes in time."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = bytearray()

    @classmethod
    def at(cls, address: str, client_id: bytes, *, clean: bool = True) -> Client:
        """Connected to HOST:PORT, and let in."""
        host, _, port = address.rpartition(":")
        client = cls(socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S))
        client.socket.sendall(connect_packet(client_id, clean=clean))
        client.expect(CONNACK)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def subscribe(self, patterns: Iterable[bytes], qos: int = 0) -> None:
        self.socket.sendall(subscribe_packet(1, patterns, qos))
        self.expect(SUBACK)

    def ping(self) -> None:
        """All that was sent before has been run when the answer comes."""
        self.socket.sendall(packet(PINGREQ, b""))
        self.expect(PINGRESP)

    def expect(self, kind: int) -> bytes:
        """The rest of the next packet, which must be of that kind. Raises ConnectionError."""
        first, rest = self.next()
        if first >> 4 != kind:
            raise ConnectionError(f"a packet of type {first >> 4} instead of {kind}")
        return rest

    def next(self) -> tuple[int, bytes]:
        """First byte and rest of the next packet. Raises ConnectionError where the connection ends."""
        while True:
            found = first_packet(self._buffer)
            if found is not None:
                first, rest, length = found
                del self._buffer[:length]
                return first, rest
            self._receive()

    def discard(self, count: int) -> None:
        """Reads so many bytes and forgets them. Raises ConnectionError where the connection ends."""
        while len(self._buffer) < count:
            count -= len(self._buffer)
            self._buffer.clear()
            self._receive()
        del self._buffer[:count]

    def _receive(self) -> None:
        some = self.socket.recv(CHUNK)
        if not some:
            raise ConnectionError("the broker ended the connection")
        self._buffer += some


def first_packet(data: bytes | bytearray, start: int = 0) -> tuple[int, bytes, int] | None:
    """First byte, rest and whole length of the packet at ``start``. None: it is not whole."""
    length, shift, at = 0, 0, start + 1
    while at < len(data):
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            end = at + length
            return (data[start], bytes(data[at:end]), end - start) if end <= len(data) else None
    return None
