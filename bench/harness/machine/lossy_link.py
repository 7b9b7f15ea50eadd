"""A bad link between two network namespaces, where the kernel has no netem: two TUN devices, and a process between them
that loses, delays, repeats and reorders packets: ``python -m bench.harness.machine.lossy_link --far-pid PID --near
192.0.2.1 --far 192.0.2.2 --device bad1``.

What the link is to be like comes as JSON on standard input, one line a change (``Quality``); the end of that input ends
the relay, and its devices with it.
"""

from __future__ import annotations

import argparse
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.harness.machine import namespaces as own_network
from srtm.errors import Unavailable

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_MTU = 1500
READY = b"ready\n"


class Quality(msgspec.Struct, frozen=True):
    """``loss`` and ``twice``: parts of the packets, 0 to 1. A packet takes ``delay_ms`` and up to ``jitter_ms`` more,
    so that some overtake others."""

    loss: float = 0.0
    twice: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0


GOOD, CUT = Quality(), Quality(loss=1.0)


@dataclass
class Way:
    """One direction: what is on its way, and when it arrives. Pure; ``chance`` is seeded."""

    chance: random.Random
    quality: Quality = GOOD
    _queue: list[tuple[int, int, bytes]] = field(default_factory=list)
    _count: int = 0

    def send(self, packet: bytes, now_ns: int) -> None:
        if self.chance.random() < self.quality.loss:
            return
        for _ in range(2 if self.chance.random() < self.quality.twice else 1):
            delay_ms = self.quality.delay_ms + self.quality.jitter_ms * self.chance.random()
            self._count += 1  # those of one instant keep their order
            heapq.heappush(self._queue, (now_ns + round(delay_ms * 1e6), self._count, packet))

    def arrived(self, now_ns: int) -> list[bytes]:
        packets = []
        while self._queue and self._queue[0][0] <= now_ns:
            packets.append(heapq.heappop(self._queue)[2])
        return packets

    @property
    def next_ns(self) -> int | None:
        return self._queue[0][0] if self._queue else None


def enter_namespace_of(pid: int) -> None:
    """Raises Unavailable."""
    own_network.enter_existing(Path(f"/proc/{pid}/ns/net"))


def open_tun(device: str, address: str, peer: str) -> int:
    """A descriptor of packets, in the present namespace. Raises Unavailable."""
    try:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", device.encode(), _TUN_WITHOUT_HEADER))
    except OSError as error:
        raise Unavailable(f"TUN device {device}: {error.strerror}") from None
    own_network.ip("addr", "add", address, "peer", peer, "dev", device)
    own_network.ip("link", "set", device, "up")
    return descriptor


def relay(near: int, far: int, seed: int) -> None:
    """Until standard input ends."""
    chance = random.Random(seed)
    ways = {near: Way(chance), far: Way(chance)}
    ends = {near: far, far: near}
    while True:
        due_ns = min((way.next_ns for way in ways.values() if way.next_ns is not None), default=None)
        wait_s = None if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        readable, _, _ = select.select([near, far, sys.stdin.fileno()], [], [], wait_s)
        now_ns = time.monotonic_ns()
        if sys.stdin.fileno() in readable:
            line = sys.stdin.buffer.readline()
            if not line:
                return
            quality = msgspec.json.decode(line, type=Quality)
            for way in ways.values():
                way.quality = quality
        for end, way in ways.items():
            if end in readable:
                way.send(os.read(end, _MTU), now_ns)
            for packet in way.arrived(time.monotonic_ns()):
                os.write(ends[end], packet)


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.harness.machine.lossy_link")
    parser.add_argument("--far-pid", type=int, required=True)
    parser.add_argument("--near", required=True)
    parser.add_argument("--far", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    near = open_tun(asked.device, asked.near, asked.far)
    enter_namespace_of(asked.far_pid)
    far = open_tun(asked.device, asked.far, asked.near)
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    relay(near, far, asked.seed)


if __name__ == "__main__":
    main()
