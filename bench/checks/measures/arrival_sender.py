"""The far end of ``srtm bench arrival``: a process in a network namespace of its own that sends messages at known
instants while the broker is stopped.

One JSON line in, one out. It ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.harness.cluster_runs import nsq_socket
from bench.harness.machine import namespaces as own_network
from srtm import protocol as wire

READY = b"ready\n"
_STOPS_WITHIN_S = 5.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """``rounds`` times: stop the process ``broker_pid`` (if it is to be late at all), let every connection send
    ``messages`` messages, evenly in turns over ``span_ms``, then let it go on and take the answers."""

    broker_pid: int
    address: str
    topic: str
    stop: bool
    span_ms: float
    connections: int
    messages: int
    rounds: int


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """``{client id: [ns of the monotonic clock just before each message was handed to the kernel]}``."""

    sent_ns: dict[str, list[int]]


def main(device: str, address: str) -> None:
    """``address`` (with its prefix length) is given to ``device``, which somebody puts here once we are ready."""
    own_network.enter()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    if not sys.stdin.buffer.readline():
        return
    own_network.set_up(device, address)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        sent = carry_out(msgspec.json.decode(line, type=Order))
        sys.stdout.buffer.write(msgspec.json.encode(sent) + b"\n")
        sys.stdout.buffer.flush()


def carry_out(order: Order) -> Sent:
    with ExitStack() as held:
        names = [f"sender-{number}" for number in range(order.connections)]
        senders = {name: held.enter_context(nsq_socket.connect(order.address, name)) for name in names}
        sent: dict[str, list[int]] = {name: [] for name in names}
        for _ in range(order.rounds):
            _one_round(order, senders, sent)
        return Sent(sent_ns=sent)


def _one_round(order: Order, senders: dict[str, socket.socket], sent: dict[str, list[int]]) -> None:
    turns = [name for _ in range(order.messages) for name in senders]
    span_ns = int(order.span_ms * 1e6)
    if order.stop:
        os.kill(order.broker_pid, signal.SIGSTOP)
    try:
        if order.stop:
            _wait_stopped(order.broker_pid)
        start_ns = time.monotonic_ns()
        for number, name in enumerate(turns):
            _wait_until(start_ns + span_ns * number // len(turns))
            at_ns = time.monotonic_ns()
            senders[name].sendall(wire.pub(order.topic, at_ns.to_bytes(8, "big")))
            sent[name].append(at_ns)
        _wait_until(start_ns + span_ns)
    finally:
        if order.stop:
            os.kill(order.broker_pid, signal.SIGCONT)
    for name in turns:
        nsq_socket.expect_ok(senders[name])


def _wait_stopped(pid: int) -> None:
    """SIGSTOP takes effect thread by thread. Raises TimeoutError."""
    deadline = time.monotonic() + _STOPS_WITHIN_S
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not stop")


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def _wait_until(at_ns: int) -> None:
    """To the microsecond: asleep while it is far off, then awake."""
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        if left_ns > 2_000_000:
            time.sleep((left_ns - 1_000_000) / 1e9)


if __name__ == "__main__":
    main(*sys.argv[1:])
