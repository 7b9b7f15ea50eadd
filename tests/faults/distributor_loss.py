"""What the death of the distributor costs under the lease rule "keep": ``python -m
tests.faults.distributor_loss``.

Two brokers, publishers that send in small bursts, a consumer; half-way the distributor is killed, and stays away. Every
message has an answer and arrives. Its access delay must be, to the nanosecond, what the shares as they were prescribe
(``srtm.token_bucket.bucket`` on the arrivals of each broker): then the death cost nothing, however unsteady the
machine is.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import trio

from bench.harness.cluster_runs.broker_api import BucketState, bucket_state
from bench.harness.cluster_runs.trace import Column, Trace, fetch_trace
from bench.harness.results.intervals import percentile_ms
from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber
from srtm.console.running import run_trio
from srtm.errors import SrtmError
from srtm.token_bucket.bucket import Bucket
from srtm.units import to_micro
from tests.faults.soak_broker import until_answer
from tests.support.ports import pick_addresses

TOPIC = "kept"
_PUBLISHERS, _BATCH, _EVERY_S = 20, 5, 0.5
_RATE = _PUBLISHERS * _BATCH / _EVERY_S
_SETTLED_S = 30.0


@dataclass
class Count:
    sent: int = 0
    refused: int = 0
    received: int = 0


@dataclass(frozen=True)
class Half:
    """The messages that arrived before, or after, the distributor's end."""

    access_ns: Column
    processing_ns: Column
    astray: int  # messages that were not due when the share alone says

    def __str__(self) -> str:
        def shown(delays_ns: Column) -> str:
            p50, p99, most = (percentile_ms(delays_ns, percentile) for percentile in (50, 99, 100))
            return f"p50 {p50:.3f}, p99 {p99:.3f}, max {most:.3f} ms"

        delays = f"access {shown(self.access_ns)}, processing {shown(self.processing_ns)}"
        return f"{len(self.access_ns)} messages, {self.astray} not due when the shares say, {delays}"


async def measure(seconds: float) -> tuple[Count, Half, Half]:
    """``seconds`` before the kill, and as many after it."""
    count, addresses = Count(), pick_addresses(5)
    url, brokers = f"http://{addresses[0]}", [(addresses[1], addresses[2]), (addresses[3], addresses[4])]
    with tempfile.TemporaryDirectory() as directory:
        async with AsyncExitStack() as stack:
            words = ["distributor", "--http-address", addresses[0], "--store", f"sqlite:///{directory}/store.sqlite3"]
            distributor = await _start(words, addresses[0], stack)
            for number, (tcp, http) in enumerate(brokers):
                home = trio.Path(directory) / f"b{number}"
                await home.mkdir()
                words = ["broker", "--name", f"b{number}", "--data-path", str(home), "--mcap", str(_RATE)]
                words += ["--tcp-address", tcp, "--http-address", http, "--distributor", url]
                await _start(words, http, stack)
            await _submit(url)
            killed_ns = await _traffic(url, seconds, distributor, count)
            traces = [await fetch_trace(http, TOPIC) for _, http in brokers]
            shares = [await bucket_state(http, TOPIC) for _, http in brokers]
    prescribed = [_prescribed_ns(*one) for one in zip(traces, shares, strict=True)]
    return count, _half(traces, prescribed, 0, killed_ns), _half(traces, prescribed, killed_ns, 2**62)


async def _start(words: Sequence[str], http_address: str, stack: AsyncExitStack) -> trio.Process:
    command = [sys.executable, "-m", "srtm", *words]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.DEVNULL)
    stack.callback(process.kill)
    await until_answer(http_address)
    return process


async def _submit(url: str) -> None:
    publishers = [{"count": _PUBLISHERS, "rate": _BATCH / _EVERY_S, "batch": _BATCH, "id_prefix": "p"}]
    slo = {"percentile": 99, "latency_ms": 50}
    document = {"name": TOPIC, "rate": _RATE * 1.1, "burst": 20, "mode": "static", "slo": slo}
    async with DistributorClient([url]) as client:
        await client.create_or_change_topic(TOPIC, {**document, "placement": "lb", "publishers": publishers})


async def _traffic(url: str, seconds: float, distributor: trio.Process, count: Count) -> int:
    """When the distributor was killed, on the monotonic clock, ns."""
    async with Subscriber(TOPIC, "bench", distributor=url) as subscriber, trio.open_nursery() as nursery:
        nursery.start_soon(_consume, subscriber, count)
        async with trio.open_nursery() as publishing:
            for number in range(1, _PUBLISHERS + 1):
                publishing.start_soon(_publish, url, number, 2 * seconds, count)
            await trio.sleep(seconds)
            killed_ns = time.monotonic_ns()
            distributor.send_signal(signal.SIGKILL)
        with trio.move_on_after(_SETTLED_S):
            while True:
                if count.received >= count.sent - count.refused:
                    break
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    return killed_ns


async def _publish(url: str, number: int, seconds: float, count: Count) -> None:
    async with Publisher(TOPIC, f"p{number}", distributor=url) as publisher:
        ends_s = trio.current_time() + seconds
        await trio.sleep(number * _EVERY_S / _PUBLISHERS)  # one after the other: what waits, waits for tokens alone
        while trio.current_time() < ends_s:
            started_s = trio.current_time()
            count.sent += _BATCH
            try:
                await publisher.publish_many([b"x"] * _BATCH)
            except SrtmError:
                count.refused += _BATCH
            await trio.sleep_until(started_s + _EVERY_S)


async def _consume(subscriber: Subscriber, count: Count) -> None:
    async for delivery in subscriber:
        count.received += 1
        await delivery.finish()


def _prescribed_ns(trace: Trace, share: BucketState) -> Column:
    """When each message of a broker is due that has this share from the first one on, full: it was the first grant."""
    arrivals = trace.arrival_ns.tolist()
    bucket = Bucket(to_micro(share.rate, "rate"), to_micro(share.burst, "burst"), arrivals[0])
    return np.array([bucket.take(1, arrival) for arrival in arrivals], dtype=np.int64)


def _half(traces: Sequence[Trace], prescribed: Sequence[Column], since_ns: int, until_ns: int) -> Half:
    access, processing, astray = [], [], 0
    for trace, due_ns in zip(traces, prescribed, strict=True):
        there = (trace.arrival_ns >= since_ns) & (trace.arrival_ns < until_ns) & (trace.sent_ns > 0)
        access.append(trace.access_ns[there])
        processing.append((trace.sent_ns - trace.due_ns)[there])
        astray += int((trace.due_ns != due_ns)[there].sum())
    return Half(np.concatenate(access), np.concatenate(processing), astray)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.distributor_loss")
    parser.add_argument("--seconds", type=float, default=30.0, help="before the kill, and after it")
    asked = parser.parse_args()
    count, before, after = run_trio(partial(measure, asked.seconds))
    lost = count.sent - count.refused - count.received
    print(f"before: {before}\nafter:  {after}")
    print(f"sent {count.sent}, refused {count.refused}, lost {lost}")
    failed = lost or count.refused or before.astray or after.astray or len(after.access_ns) == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
