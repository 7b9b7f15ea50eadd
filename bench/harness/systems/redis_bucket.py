"""A token bucket as people keep it in Redis: a Lua script that decides one message, and what it takes on loopback.

The client speaks RESP2 (redis.io/docs/reference/protocol-spec) on one blocking socket: a request is an array of bulk
strings.
"""

from __future__ import annotations

import socket
import statistics
import time
from dataclasses import dataclass

from srtm.errors import PeerError, Unavailable

_WITHIN_S = 10.0
_ALONE, _TOGETHER, _TIMES = 2_000, 200, 50  # decisions, and times that many were asked for together
SCRIPT = """
local fill = tonumber(redis.call('HGET', KEYS[1], 'fill') or ARGV[2])
local at = tonumber(redis.call('HGET', KEYS[1], 'at') or ARGV[3])
local now = math.max(at, tonumber(ARGV[3]))
fill = math.min(tonumber(ARGV[2]), fill + (now - at) * tonumber(ARGV[1])) - 1
redis.call('HSET', KEYS[1], 'fill', tostring(fill), 'at', tostring(now))
return tostring(math.max(0, -fill / tonumber(ARGV[1])))
"""


@dataclass(frozen=True)
class Cost:
    """``round_trip_ns``: median of decisions one at a time; ``decision_ns``: of many in one write."""

    round_trip_ns: int
    decision_ns: int


def encoded(*words: str) -> bytes:
    """One command."""
    parts = [f"*{len(words)}\r\n".encode()]
    parts += [f"${len(word.encode())}\r\n".encode() + word.encode() + b"\r\n" for word in words]
    return b"".join(parts)


class RedisBucket:
    """One key. ``rate`` in tokens/s, ``burst`` in tokens; time in s is the caller's. Use as a context manager."""

    def __init__(self, address: str, key: str, rate: float, burst: float) -> None:
        """Raises Unavailable, PeerError."""
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=_WITHIN_S)
        except OSError as error:
            raise Unavailable(f"Redis at {address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")
        self._key, self._envelope = key, (repr(rate), repr(burst))
        self._socket.sendall(encoded("SCRIPT", "LOAD", SCRIPT))
        self._script = self._answer()

    def __enter__(self) -> RedisBucket:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def decide(self, at_s: float, count: int = 1) -> list[float]:
        """How long, s, each of ``count`` messages at that instant has to wait; all of them in one write. Raises
        PeerError."""
        one = encoded("EVALSHA", self._script, "1", self._key, *self._envelope, repr(at_s))
        self._socket.sendall(one * count)
        return [float(self._answer()) for _ in range(count)]

    def _answer(self) -> str:
        line = self._lines.readline().rstrip(b"\r\n")
        if not line.startswith(b"$"):
            raise PeerError(f"Redis answered {line!r}")
        return self._lines.read(int(line[1:]) + 2)[:-2].decode()


def measured(address: str) -> Cost:
    """Raises Unavailable, PeerError."""
    with RedisBucket(address, "srtm-bench", 1e6, 1e6) as bucket:
        alone = [_took_ns(bucket, number, 1) for number in range(_ALONE)]
        together = [_took_ns(bucket, _ALONE + number, _TOGETHER) for number in range(_TIMES)]
    return Cost(round(statistics.median(alone)), round(statistics.median(together) / _TOGETHER))


def _took_ns(bucket: RedisBucket, number: int, count: int) -> int:
    began_ns = time.monotonic_ns()
    bucket.decide(number * 1e-3, count)
    return time.monotonic_ns() - began_ns
