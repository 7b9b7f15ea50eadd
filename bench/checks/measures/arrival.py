"""``srtm bench arrival``: the arrival times that a broker notes, against the truth.

Two network namespaces, joined by a pair of virtual Ethernet devices: the broker in one, a sender in the other, both on
the clock of this host. The sender stops the broker, sends several messages on each connection at known instants, and
lets it go on. The error of an arrival is how much later than just before the sending it is: the way through the kernel,
plus what the stamp is too late. Once with the kernel's stamps, once with those of the packets.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import trio
from rich.console import Console
from rich.table import Table

from bench.checks.measures.arrival_sender import READY, Order, Sent
from bench.harness.cluster_runs.broker_api import bucket_state, put_bucket
from bench.harness.cluster_runs.trace import Column, Trace, fetch_trace, percentile_ms
from bench.harness.machine import namespaces as own_network
from bench.harness.machine.checkout import ROOT
from bench.harness.results.document import markdown_table, refuse_without_block, write_block
from bench.harness.results.provenance import provenance
from bench.harness.results.results import Results, write_results
from bench.harness.results.verdict import Check, Verdict, at_most
from bench.harness.systems.systems import System, bare_broker
from srtm.concurrency.background import background_nursery
from srtm.errors import PeerError

BLOCK = "arrival"
CLAIM = (
    "A reader that is late by 0, 1, 10 and 100 ms while messages lie unread on each connection: the packet clock's"
    " error does not grow with it, the kernel's stays within the bound that the broker tells."
)
CLOCKS = ("kernel", "packet")
LATE_MS = (0.0, 1.0, 10.0, 100.0)
SPAN_OF_NONE_MS = 10.0  # over which messages are sent to a reader that is not late
CONNECTIONS, MESSAGES = 4, 5  # messages of one connection and round
PACKET_P99_MS = 1.0
BROKER_ADDRESS, SENDER_ADDRESS = "192.0.2.1", "192.0.2.2"
BROKER_DEVICE, SENDER_DEVICE = "srtm0", "srtm1"
BROKER_PORT = 4150
UNLIMITED = 1e6  # msg/s, and messages: far above what is sent, so that nothing waits and everything is traced
SENDS_WITHIN_S = 120.0


@dataclass(frozen=True)
class ArrivalOptions:
    rounds: int = 50
    json_file: str | None = None
    document: Path | None = None  # to write figures into


@dataclass(frozen=True)
class Errors:
    """Of one clock, with a reader that late. ``errors_ns``: arrival minus sending, each message once."""

    clock: str
    late_ms: float
    errors_ns: Column
    source: str  # what the broker says it took
    bound_ms: float  # what the broker says its stamps were too late at most
    merged_share: float

    @property
    def beyond_bound_ms(self) -> float:
        """How much later than the bound the worst one was; the least error is the way through the kernel."""
        return float(self.errors_ns.max() - self.errors_ns.min()) / 1e6 - self.bound_ms


async def arrival(options: ArrivalOptions, console: Console) -> Verdict:
    """The calling process must be in a network namespace of its own (``own_network.enter``). Raises Unavailable."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    with TemporaryDirectory(prefix="srtm-arrival-") as folder:
        async with _sender() as sender:
            found = []
            for clock in CLOCKS:
                with console.status(f"measuring the {clock} clock"):
                    found += await _measure(Path(folder), clock, sender, options.rounds)
    verdict = judge(found)
    show(console, found, verdict)
    results = Results.of(
        "bench arrival",
        verdict.runs,
        seed=0,
        started=started,
        settings={"rounds": options.rounds, "connections": CONNECTIONS, "messages": MESSAGES},
        reasons=verdict.reasons,
        result={"reached": verdict.reached, "line": verdict.line, "checks": verdict.checks},
    )
    text = markdown(found, verdict, started)
    if options.document is not None:
        write_block(options.document, BLOCK, text)
    write_results(options.json_file, results)
    return verdict


@asynccontextmanager
async def _sender() -> AsyncIterator[trio.Process]:
    """The far end, its device in place and ours too."""
    command = [sys.executable, "-m", "bench.checks.measures.arrival_sender", SENDER_DEVICE, f"{SENDER_ADDRESS}/24"]
    start = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False, cwd=ROOT)
    async with background_nursery() as nursery:
        process: trio.Process = await nursery.start(start)
        await _expect_ready(process)
        own_network.join(process.pid, BROKER_DEVICE, SENDER_DEVICE)
        own_network.set_up(BROKER_DEVICE, f"{BROKER_ADDRESS}/24")
        await _tell(process, b"\n")
        await _expect_ready(process)
        yield process


async def _measure(folder: Path, clock: str, sender: trio.Process, rounds: int) -> list[Errors]:
    address = f"{BROKER_ADDRESS}:{BROKER_PORT}"
    async with bare_broker(folder / clock, "--tcp-address", address, "--arrival-clock", clock) as broker:
        return [await _one_lateness(broker, address, clock, late_ms, sender, rounds) for late_ms in LATE_MS]


async def _one_lateness(
    broker: System, address: str, clock: str, late_ms: float, sender: trio.Process, rounds: int
) -> Errors:
    topic = f"late-{late_ms:g}"
    await put_bucket(broker.http_address, topic, UNLIMITED, UNLIMITED)
    order = Order(
        broker_pid=broker.pid,
        address=address,
        topic=topic,
        stop=late_ms > 0,
        span_ms=late_ms or SPAN_OF_NONE_MS,
        connections=CONNECTIONS,
        messages=MESSAGES,
        rounds=rounds,
    )
    await _tell(sender, msgspec.json.encode(order) + b"\n")
    sent = msgspec.json.decode(await _line(sender), type=Sent)
    state = await bucket_state(broker.http_address, topic)
    errors_ns = errors_of(sent, await fetch_trace(broker.http_address, topic))
    bound_ms = state.timestamp_bias_max_seconds * 1e3
    return Errors(clock, late_ms, errors_ns, state.timestamp_source, bound_ms, state.merged_read_share)


def errors_of(sent: Sent, trace: Trace) -> Column:
    """Arrival minus sending of each message; one connection's messages keep their order. Raises PeerError if some are
    missing."""
    errors = []
    for name, sent_ns in sent.sent_ns.items():
        index = trace.publishers.index(name) if name in trace.publishers else -1
        arrivals = trace.arrival_ns[trace.publisher == index]
        if len(arrivals) != len(sent_ns):
            raise PeerError(f"{name} sent {len(sent_ns)} messages, the trace has {len(arrivals)}")
        errors.append(arrivals - np.array(sent_ns, dtype=np.int64))
    return np.concatenate(errors)


def judge(found: Sequence[Errors]) -> Verdict:
    checks, reasons = [], []
    for errors in found:
        what = f"{errors.clock} clock, reader late by {errors.late_ms:g} ms"
        if errors.source != errors.clock:
            reasons.append(f"{what}: the broker took its stamps from {errors.source}")
        if (errors.errors_ns < 0).any():
            reasons.append(f"{what}: {int((errors.errors_ns < 0).sum())} arrivals before their sending")
        if errors.clock == "packet":
            checks.append(at_most(f"{what}: p99 error", percentile_ms(errors.errors_ns, 99), PACKET_P99_MS, "ms"))
        else:
            beyond = errors.beyond_bound_ms
            worst = f"{float(errors.errors_ns.max()) / 1e6:.4g} ms"
            # Half a millisecond: what the way through the kernel itself may vary by on a busy machine.
            checks.append(
                Check(f"{what}: largest error", worst, f"within the bound of {errors.bound_ms:.4g} ms", beyond <= 0.5)
            )
    return Verdict("arrival", CLAIM, checks, [run_of(errors) for errors in found], reasons=reasons)


def run_of(errors: Errors) -> dict[str, object]:
    return {
        "name": f"{errors.clock} {errors.late_ms:g} ms",
        "brokers": 1,
        "sent": len(errors.errors_ns),
        "error_p50_ms": percentile_ms(errors.errors_ns, 50),
        "error_p99_ms": percentile_ms(errors.errors_ns, 99),
        "error_max_ms": percentile_ms(errors.errors_ns, 100),
        "bound_ms": errors.bound_ms,
        "merged_read_share": errors.merged_share,
    }


COLUMNS = ("reader late by", "clock", "messages", "error p50, ms", "p99, ms", "largest, ms", "told bound, ms")


def rows_of(found: Sequence[Errors]) -> list[list[str]]:
    """By lateness, so that both clocks stand below each other."""
    rows = []
    for errors in sorted(found, key=lambda errors: errors.late_ms):
        figures = [f"{percentile_ms(errors.errors_ns, percentile):.3f}" for percentile in (50, 99, 100)]
        bound = f"{errors.bound_ms:.3f}" if errors.clock == "kernel" else "-"
        rows.append([f"{errors.late_ms:g} ms", errors.clock, str(len(errors.errors_ns)), *figures, bound])
    return rows


def show(console: Console, found: Sequence[Errors], verdict: Verdict) -> None:
    console.print(verdict.claim)
    drawn = Table(*COLUMNS, header_style="bold")
    for row in rows_of(found):
        drawn.add_row(*row)
    console.print(drawn)
    console.print(f"[bold {'green' if verdict.reached else 'red'}]{verdict.line}[/]")


def markdown(found: Sequence[Errors], verdict: Verdict, started: float) -> str:
    table = markdown_table(list(COLUMNS), rows_of(found))
    return f"{verdict.claim}\n\n{table}\n\n**{verdict.line}.** {provenance(started)}"


async def _tell(process: trio.Process, line: bytes) -> None:
    assert process.stdin is not None
    await process.stdin.send_all(line)


async def _line(process: trio.Process) -> bytes:
    """The next line of its output. Raises PeerError if it ends or takes too long."""
    assert process.stdout is not None
    line = b""
    with trio.move_on_after(SENDS_WITHIN_S):
        while not line.endswith(b"\n"):
            part = await process.stdout.receive_some()
            if not part:
                raise PeerError("the sender ended")
            line += part
        return line
    raise PeerError(f"the sender did not answer within {SENDS_WITHIN_S:g} s")


async def _expect_ready(process: trio.Process) -> None:
    if await _line(process) != READY:
        raise PeerError("the sender is not ready")
