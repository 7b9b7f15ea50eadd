"""Conformant messages that arrive while the broker is stopped are not delayed: arrival is the kernel's word.

Two hundred connections send one message each, evenly over 300 ms, while the broker process is stopped. Whether they
conform is decided by the senders' own clock, not by the stamps under test. A broker that took the time of reading for
that of arrival would find 200 messages at one instant, let ``BURST`` of them go and delay the others by up to 0.18 s.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from bench.harness.cluster_runs import nsq_socket
from bench.harness.cluster_runs.broker_api import bucket_state, put_bucket
from bench.harness.cluster_runs.trace import Trace, fetch_trace
from bench.harness.results.verdict import Check, Verdict, none_of
from bench.harness.systems.systems import System, bare_broker
from srtm import protocol as wire
from srtm.token_bucket.bucket import Bucket
from srtm.units import to_micro

CLAIM = (
    "Stopped for 300 ms while 200 connections each send one conformant message: none has any access delay afterwards."
)
TOPIC = "sigstop"
CONNECTIONS = 200
STOPPED_S = 0.3
RATE = 1_000.0  # msg/s: the messages come at two thirds of it
BURST = 20.0  # room for a sender that the scheduler held up for 20 ms


@dataclass(frozen=True)
class Sends:
    """Monotonic clock, ns: broker stopped, each message handed to the kernel, broker continued."""

    stopped_ns: int
    sent_ns: list[int]
    continued_ns: int


async def stop_and_judge(folder: Path, *options: str, connections: int = CONNECTIONS, messages: int = 1) -> Verdict:
    """A broker with ``options`` that is stopped while each of ``connections`` sends ``messages``, in turns."""
    async with bare_broker(folder, *options) as broker:
        await put_bucket(broker.http_address, TOPIC, RATE, BURST)
        with ExitStack() as held:
            names = [f"sender-{number}" for number in range(connections)]
            senders = [held.enter_context(nsq_socket.connect(broker.tcp_address, name)) for name in names] * messages
            sends = await _send_while_stopped(broker, senders)
            for sender in senders:
                nsq_socket.expect_ok(sender)
        source = (await bucket_state(broker.http_address, TOPIC)).timestamp_source
        return judge(sends, await fetch_trace(broker.http_address, TOPIC), source)


def judge(sends: Sends, trace: Trace, timestamp_source: str) -> Verdict:
    late_sends = _delayed_by_reference(sends)
    reasons = [f"{late_sends} messages did not conform when they were sent: the machine was too busy"] * bool(
        late_sends
    )
    outside = int(((trace.arrival_ns < sends.stopped_ns) | (trace.arrival_ns > sends.continued_ns)).sum())
    longest_ms = float(trace.access_ns.max(initial=0)) / 1e6
    return Verdict(
        name="sigstop",
        claim=CLAIM,
        checks=[
            Check("messages in the trace", f"{len(trace)}", f"{len(sends.sent_ns)}", len(trace) == len(sends.sent_ns)),
            none_of("messages with an access delay", int((trace.access_ns > 0).sum())),
            none_of("arrival stamps from outside the stop", outside),
        ],
        runs=[{"name": "sigstop", "brokers": 1, "sent": len(sends.sent_ns), "access_max_ms": longest_ms}],
        settings={"rate": RATE, "burst": BURST, "stopped_ms": 1e3 * STOPPED_S, "timestamp_source": timestamp_source},
        reasons=reasons,
    )


def _delayed_by_reference(sends: Sends) -> int:
    bucket = Bucket(to_micro(RATE, "rate"), to_micro(BURST, "burst"), sends.stopped_ns)
    return sum(bucket.take(1, at_ns) != at_ns for at_ns in sends.sent_ns)


async def _send_while_stopped(broker: System, connections: list[socket.socket]) -> Sends:
    command = wire.pub(TOPIC, b"x" * 100)
    sent_ns = []
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        stopped_ns, start = time.monotonic_ns(), trio.current_time()
        for number, connection in enumerate(connections):
            await trio.sleep_until(start + STOPPED_S * number / len(connections))
            connection.sendall(command)
            sent_ns.append(time.monotonic_ns())
        await trio.sleep_until(start + STOPPED_S)
        return Sends(stopped_ns, sent_ns, time.monotonic_ns())
    finally:
        os.kill(broker.pid, signal.SIGCONT)
