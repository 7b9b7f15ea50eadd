"""What the network takes, one way, measured beside the traffic: datagrams from host to host.

All hosts have one clock, so a datagram that carries the instant at which it was sent tells the way that it had. The
receiver's instant is the kernel's: when it is read does not matter. Sockets are made inside the hosts' namespaces and
used from one thread, which is the same processor noise for all of them.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.layout import Host

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python does not name it
_PORT = 4999
_PAUSE_S = 0.005  # between two datagrams, all ways in turn
_LAST_S = 0.2  # after the end, for what is still on its way, beyond the longest seen
_DATAGRAM = struct.Struct("<iq")  # way, ns since 1970 when it was sent
_STAMP = struct.Struct("<qq")  # timespec


@dataclass
class OneWay:
    """From one host to another. ``took_ns``: of each datagram that arrived."""

    source: Host
    target: Host
    sent: int = 0
    took_ns: list[int] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.sent - len(self.took_ns)


def between(sources: Sequence[Host], targets: Sequence[Host]) -> list[OneWay]:
    return [OneWay(source, target) for source in sources for target in targets]


@contextmanager
def measuring(ways: Sequence[OneWay], namespaces: Mapping[str, Path]) -> Iterator[None]:
    """While the block runs, and a moment longer, ``ways`` grow. ``namespaces``: of hosts, by name. Raises
    Unavailable."""
    with ExitStack() as stack:
        senders = {way.source.name: way.source for way in ways}
        receivers = {way.target.name: way.target for way in ways}
        out = {name: stack.enter_context(own_network.inside(namespaces[name], _sender)) for name in senders}
        come = [
            stack.enter_context(own_network.inside(namespaces[name], partial(_receiver, host.address)))
            for name, host in receivers.items()
        ]
        over = threading.Event()
        thread = threading.Thread(target=_measure, args=(ways, out, come, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _sender() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _receiver(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    made.setblocking(False)
    made.bind((address, _PORT))
    return made


def _measure(
    ways: Sequence[OneWay], out: Mapping[str, socket.socket], come: Sequence[socket.socket], over: threading.Event
) -> None:
    number = 0
    while not over.wait(_PAUSE_S):
        way = ways[number % len(ways)]
        with suppress(OSError):  # a full queue loses it, as a network may
            out[way.source.name].sendto(_DATAGRAM.pack(number % len(ways), time.time_ns()), (way.target.address, _PORT))
        way.sent += 1
        number += 1
        _take(ways, come)
    longest_s = max((took for way in ways for took in way.took_ns), default=0) / 1e9
    time.sleep(_LAST_S + longest_s)
    _take(ways, come)


def _take(ways: Sequence[OneWay], come: Sequence[socket.socket]) -> None:
    for receiver in come:
        while (arrived := _one(receiver)) is not None:
            number, took_ns = arrived
            ways[number].took_ns.append(took_ns)


def _one(receiver: socket.socket) -> tuple[int, int] | None:
    try:
        data, ancillary, _, _ = receiver.recvmsg(_DATAGRAM.size, 64)
    except BlockingIOError:
        return None
    number, sent_ns = _DATAGRAM.unpack(data)
    return number, stamp_ns(ancillary) - sent_ns


def stamp_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """When the kernel got what was received, ns since 1970; now, where it does not say."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _STAMP.unpack(data[: _STAMP.size])
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()
