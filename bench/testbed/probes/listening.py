"""A subscriber's host: ``python -m bench.testbed.probes.listening TOPIC CHANNEL ADDRESS...``, a process inside its
namespace.

Takes and acknowledges what the load generator sent; the body says what and when
(``bench/loadgen/src/protocol/body.rs``). Receipt is the kernel's stamp of what was read, on the monotonic clock. Says
that it is ready; when its standard input ends, it writes ``Heard`` as JSON and ends.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from collections.abc import Sequence

import msgspec

from bench.harness.cluster_runs.nsq_socket import connect
from bench.harness.machine.lossy_link import READY
from bench.testbed.net.one_way_delay import SO_TIMESTAMPNS, stamp_ns
from srtm import protocol as wire
from srtm.cluster import parent_death as lifeline
from srtm.errors import PeerError, SrtmError

_READ_BYTES = 1 << 18
_READY = 2500  # as the load generator's subscribers
_HEARTBEAT_MS = 30_000  # a subscriber may not do without
_TRIES = 3
_BODY = struct.Struct(">QIIQq")  # run, publisher, whether it is measured, sequence, intended instant


class Heard(msgspec.Struct, kw_only=True):
    """Equal columns, one entry a message that is measured. ``source``: index into the addresses."""

    source: list[int] = []
    run: list[int] = []
    publisher: list[int] = []
    sequence: list[int] = []
    intended_ns: list[int] = []  # CLOCK_MONOTONIC, as ``received_ns``
    received_ns: list[int] = []
    foreign: int = 0  # not the load generator's


class Subscription:
    """One connection, subscribed."""

    def __init__(self, number: int, address: str, topic: str, channel: str) -> None:
        self.socket = connect(address, f"listener-{number}", heartbeat_interval=_HEARTBEAT_MS, output_buffer_size=-1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.sendall(wire.sub(topic, channel) + wire.rdy(_READY))
        self.number = number
        self._reader = wire.EventReader()

    def take(self, heard: Heard) -> bool:
        """What has come, acknowledged; False: the broker closed the connection. Raises PeerError, OSError."""
        data, ancillary, _, _ = self.socket.recvmsg(_READ_BYTES, 64)
        received_ns = stamp_ns(ancillary) + monotonic_less_wall_ns()
        self._reader.receive_data(data)
        answers = []
        while not isinstance(event := self._reader.next_event(), wire.NeedData):
            if isinstance(event, wire.Message):
                answers.append(wire.fin(event.id))
                note(heard, self.number, event.body, received_ns)
            elif isinstance(event, wire.Heartbeat):
                answers.append(wire.nop())
            elif isinstance(event, wire.Error):
                raise PeerError(f"the broker answered {event}")
        if answers:
            self.socket.sendall(b"".join(answers))
        return bool(data)


def monotonic_less_wall_ns() -> int:
    """Between the two clocks now: of some tries the one that was interrupted least."""
    tries = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_TRIES)]
    before, wall, after = min(tries, key=lambda one: one[2] - one[0])
    return (before + after) // 2 - wall


def note(heard: Heard, source: int, body: bytes, received_ns: int) -> None:
    if len(body) < _BODY.size:
        heard.foreign += 1
        return
    run, publisher, measured, sequence, intended_ns = _BODY.unpack_from(body)
    if not measured:
        return
    heard.source.append(source)
    heard.run.append(run)
    heard.publisher.append(publisher)
    heard.sequence.append(sequence)
    heard.intended_ns.append(intended_ns)
    heard.received_ns.append(received_ns)


def main(arguments: Sequence[str]) -> int:
    lifeline.hold()
    topic, channel, *addresses = arguments
    heard, selector = Heard(), selectors.DefaultSelector()
    try:
        for number, address in enumerate(addresses):
            subscription = Subscription(number, address, topic, channel)
            selector.register(subscription.socket, selectors.EVENT_READ, subscription)
        selector.register(sys.stdin, selectors.EVENT_READ)
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    sys.stdout.buffer.write(msgspec.json.encode(heard))
                    return 0
                if not key.data.take(heard):
                    print(f"{addresses[key.data.number]} closed the connection", file=sys.stderr)
                    return 1
    except (SrtmError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
