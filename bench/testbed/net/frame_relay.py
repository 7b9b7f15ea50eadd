"""Late and lossy links where the kernel has no netem: ``python -m bench.testbed.net.frame_relay``, one process for all
links.

A link's two ends are TAP devices, one on the host, one on the switch; every Ethernet frame between them goes through
here, where it is lost, or sent on when its time has come (``bench.harness.machine.lossy_link.Way``). Which links there
are comes as JSON on standard input, whose end ends the process, and its devices with it. A frame costs it some 20 us
of processor time, and while it does not run, frames wait: what a network really took is measured on the testbed
(``paths``), not assumed.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from bench.harness.machine import namespaces as own_network
from bench.harness.machine.lossy_link import READY, Quality, Way
from srtm.cluster import parent_death as lifeline
from srtm.errors import SrtmError, Unavailable

_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000  # linux/if_tun.h: IFF_TAP, IFF_NO_PI
_FRAME_BYTES = 2048  # more than the MTU's 1500 and an Ethernet header


class Cable(msgspec.Struct, frozen=True, kw_only=True):
    """One link: a device in each of two namespaces (paths), and how frames fare each way."""

    near: str
    near_device: str
    far: str
    far_device: str
    quality: Quality


class Order(msgspec.Struct, frozen=True, kw_only=True):
    cables: Sequence[Cable]
    seed: int = 1


def open_tap(device: str) -> int:
    """A descriptor of frames, in the present namespace. Raises Unavailable."""
    try:
        descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", device.encode(), _TAP_WITHOUT_HEADER))
    except OSError as error:
        raise Unavailable(f"TAP device {device}: {error.strerror}") from None
    return descriptor


class Relay:
    """All links; ``ends``: {descriptor: (the other one, what lies between)}."""

    def __init__(self, ends: Mapping[int, tuple[int, Way]]) -> None:
        self._ends = ends

    @property
    def next_ns(self) -> int | None:
        return min((way.next_ns for _, way in self._ends.values() if way.next_ns is not None), default=None)

    def take(self, end: int, clock_ns: Callable[[], int]) -> None:
        """All that has come to ``end``. The clock is read for each frame: one that comes while others are read would
        seem to have come before, and be early."""
        while True:
            try:
                frame = os.read(end, _FRAME_BYTES)
            except OSError:  # nothing more now, or the device is down
                return
            self._ends[end][1].send(frame, clock_ns())

    def pass_on(self, now_ns: int) -> None:
        for far, way in self._ends.values():
            for frame in way.arrived(now_ns):
                try:
                    os.write(far, frame)
                except OSError:  # as a switch does whose port is down
                    continue


def ways(order: Order) -> list[tuple[Way, Way]]:
    """Of each cable, there and back; the same seed treats the same frames alike."""
    return [
        (
            Way(random.Random(f"{order.seed} {cable.near_device} near"), cable.quality),
            Way(random.Random(f"{order.seed} {cable.near_device} far"), cable.quality),
        )
        for cable in order.cables
    ]


def serve(relay: Relay, ends: Sequence[int], until: int) -> None:
    """Until the descriptor ``until`` is at its end."""
    poller = select.epoll()
    for descriptor in (*ends, until):
        poller.register(descriptor, select.EPOLLIN)
    while True:
        due_ns = relay.next_ns
        wait_s = -1 if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        # epoll waits whole milliseconds, select to the nanosecond: of the poller itself
        readable = bool(select.select([poller], [], [], None if due_ns is None else wait_s)[0])
        for descriptor, _ in poller.poll(0) if readable else ():
            if descriptor == until:
                if not os.read(until, 1):
                    return
            else:
                relay.take(descriptor, time.monotonic_ns)
        relay.pass_on(time.monotonic_ns())


def main() -> int:
    lifeline.hold()
    Path("/proc/self/timerslack_ns").write_text("1")  # else a wait may be 50 us longer
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    ends: dict[int, tuple[int, Way]] = {}
    try:
        for cable, (there, back) in zip(order.cables, ways(order), strict=True):
            near = own_network.inside(Path(cable.near), partial(open_tap, cable.near_device))
            far = own_network.inside(Path(cable.far), partial(open_tap, cable.far_device))
            ends |= {near: (far, there), far: (near, back)}
    except SrtmError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    serve(Relay(ends), list(ends), sys.stdin.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
