"""Kills a broker at random instants under load, and counts what it owes afterwards: ``python -m
tests.faults.crash --kills
100``.

Queues keep ``--mem-queue-size`` messages in memory, as nsqd's do; without any (the default) everything goes through
disk. Files are small and synced often. A message counts as owed from its OK on, and from when a kill found it on disk;
it is settled in a channel when the consumer has sent FIN. What a kill found nowhere on disk was in memory alone and is
not owed any more: that can be as much as the queues may keep there, and nothing of it may ever come. A message that is
delivered again is a redelivery if it was out before, or if the last kill left it on disk more than once: a kill that
finds it on its way from its topic to the channel leaves it in both, and so may the next. More than that is a fault.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from bench.harness.results.page import Page
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import RESULTS, Stored, refuse_unpublishable, store
from bench.harness.results.sources import PRODUCT
from srtm import protocol as wire
from srtm.console.running import run_trio
from tests.faults import queue_files
from tests.faults.expected_messages import CHANNELS, Book

TOPIC = "crash"
PUBLISHERS = 4
_READY = 50  # messages that a consumer has at most
_FLAGS = ("--max-bytes-per-file", "64k", "--sync-every", "50", "--sync-timeout", "50ms")
_PUBLISHES = ((1, 400), (5, 400), (20, 400), (1, 200_000), (1000, 400))  # messages, and what a body is shorter than
_OFTEN = (60, 20, 20, 2, 1)  # the last two are larger than a file, or go in by slices
_READY_S = 60.0
_FATAL = ("panicked", "Traceback", "cannot go on", "cannot be written")
CLAIM = "After SIGKILL under load nothing that was owed is lost, and no file of a queue is damaged."
_DAMAGE = "a file of a queue was damaged"


@dataclass
class Life:
    """One process. ``requeued`` and ``seen`` are of this life only."""

    number: int
    port: int
    process: trio.Process
    seen: dict[str, set[bytes]] = field(default_factory=lambda: {channel: set() for channel in CHANNELS})
    requeued: set[bytes] = field(default_factory=set)


async def run(directory: Path, kills: int, seed: int, mem_queue_size: int = 0) -> Book:
    """Raises trio.TooSlowError where a broker hangs."""
    book, chance = Book(), random.Random(seed)
    for number in range(kills):
        async with living(directory, number, mem_queue_size, book) as life:
            if mem_queue_size and chance.random() < 0.5:
                await drain(life, book)  # memory takes nothing as long as anything is on disk
            await traffic_until_killed(life, book, len(book.acknowledged) + chance.randrange(1, 300), chance.random())
        take_stock(directory, life, mem_queue_size, book)
    async with living(directory, kills, mem_queue_size, book) as life:
        await drain(life, book)
    if life.process.returncode != 0:
        book.faults.append(f"the last broker ended with status {life.process.returncode}")
    return book


async def drain(life: Life, book: Book) -> None:
    """Let consumers finish all that comes. What is owed and does not come stays owed: lost, at the end."""
    async with trio.open_nursery() as nursery:
        for channel in CHANNELS:
            await nursery.start(consume, life, book, channel, None)
        with suppress(trio.TooSlowError):
            await book.wait_until_settled()
        nursery.cancel_scope.cancel()
    for seen in life.seen.values():
        life.requeued |= seen  # a FIN may be lost with its connection


def take_stock(directory: Path, life: Life, mem_queue_size: int, book: Book) -> None:
    """Note what a kill left."""
    queues = directory / "queue"
    found = queue_files.read(queues)
    # A topic's queue, a channel's, and what its consumer has.
    in_memory = 2 * mem_queue_size + _READY if mem_queue_size else 0
    for channel in CHANNELS:
        book.delivered[channel] |= life.seen[channel]
        book.note_kill(life.number, channel, found[TOPIC] + found[f"{TOPIC}:{channel}"], in_memory)
    matches = (queue_files.SEGMENT.fullmatch(file.name) for file in queues.iterdir())
    count = Counter(match["number"] for match in matches if match)
    book.faults += [f"segment {number} is there {times} times" for number, times in count.items() if times > 1]


@asynccontextmanager
async def living(directory: Path, number: int, mem_queue_size: int, book: Book) -> AsyncIterator[Life]:
    command = [sys.executable, "-m", "broker", "--name", "crash", "--data-path", str(directory), *_FLAGS]
    command += ["--mem-queue-size", str(mem_queue_size)]
    command += ["--tcp-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    async with trio.open_nursery() as nursery:
        try:
            port = await nursery.start(listen, process.stderr, book, number)
            yield Life(number, port, process)
        finally:
            with trio.CancelScope(shield=True):
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                with trio.move_on_after(_READY_S):
                    await process.wait()
                process.kill()
                await process.wait()


async def listen(stderr: trio.abc.ReceiveStream, book: Book, number: int, task_status: trio.TaskStatus[int]) -> None:
    """Read what the broker says, to its end; started with its port."""
    buffer, started, said = b"", False, list[str]()
    with trio.CancelScope() as scope:
        scope.deadline = trio.current_time() + _READY_S
        async for data in stderr:
            *lines, buffer = (buffer + data).split(b"\n")
            for line in map(bytes.decode, lines):
                if any(word in line for word in _FATAL):
                    book.faults.append(f"life {number}: {line}")
                if _DAMAGE in line:
                    book.damages.append(line)
                if not started:
                    said.append(line)
                found = re.search(r"listening tcp=127\.0\.0\.1:([0-9]+)", line)
                if found and not started:
                    started, scope.deadline = True, float("inf")
                    task_status.started(int(found[1]))
    if not started:
        raise RuntimeError(f"the broker of life {number} did not start: {said}")


async def traffic_until_killed(life: Life, book: Book, acknowledged: int, spread: float) -> None:
    """Publish and consume until so many are acknowledged in all; then, while everybody is at it, SIGKILL."""
    async with trio.open_nursery() as nursery:
        for channel in CHANNELS:  # first: what is published before a channel is there is not owed to it
            await nursery.start(consume, life, book, channel, spread)
        for index in range(PUBLISHERS):
            nursery.start_soon(publish, life, book, index)
        await book.wait_until_acknowledged(acknowledged)
        life.process.kill()
        nursery.cancel_scope.cancel()


async def publish(life: Life, book: Book, index: int) -> None:
    """One command after the other, each once the one before was answered, single or several messages at a time."""
    chance = random.Random(f"{life.number} {index}")
    reader = wire.EventReader()
    number = 0
    async with await connect(life) as stream:
        while True:
            count, longest = chance.choices(_PUBLISHES, _OFTEN)[0]
            bodies = [
                f"{life.number}/{index}/{number + i} ".encode() + b"x" * chance.randrange(longest) for i in range(count)
            ]
            number += count
            try:
                await stream.send_all(wire.pub(TOPIC, bodies[0]) if count == 1 else wire.mpub(TOPIC, bodies))
                event = await next_event(stream, reader)
            except trio.BrokenResourceError:
                return
            if event is None:
                return
            if event == wire.Response(b"OK"):
                book.acknowledge(bodies)
            else:
                book.faults.append(f"life {life.number}: a publish was answered {event}")


async def consume(
    life: Life,
    book: Book,
    channel: str,
    spread: float | None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Finish most of what comes, requeue some, leave some unanswered, as ``spread`` draws; None: finish all. Started
    when the channel is there."""
    reader = wire.EventReader()
    chance = random.Random(f"{life.number} {channel} {spread}")
    async with await connect(life) as stream:
        await stream.send_all(wire.sub(TOPIC, channel) + wire.rdy(_READY))
        while True:
            try:
                event = await next_event(stream, reader)
                if event is None:
                    return
                if event == wire.Response(b"OK"):
                    task_status.started()
                if isinstance(event, wire.Message):
                    await stream.send_all(
                        answer(life, book, channel, event, 1.0 if spread is None else chance.random())
                    )
            except trio.BrokenResourceError:
                return


def answer(life: Life, book: Book, channel: str, message: wire.Message, draw: float) -> bytes:
    body = message.body
    if body in book.gone[channel]:
        book.faults.append(f"life {life.number}: {body[:20]!r} came to channel {channel}, and was not on disk")
    again, before = body in life.seen[channel], body in book.delivered[channel]
    book.copies[channel][body] -= 1
    if again and not before and body not in life.requeued and book.copies[channel][body] < 0:
        book.faults.append(f"life {life.number}: {body[:20]!r} came twice to channel {channel} for no reason")
    if again or before:
        book.redelivered[channel] += 1
    life.seen[channel].add(body)
    if draw < 0.1:
        life.requeued.add(body)
        return wire.req(message.id, 0)
    if draw < 0.15:
        return wire.nop()
    book.settle(channel, body)
    return wire.fin(message.id)


async def connect(life: Life) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", life.port)
    await stream.send_all(wire.MAGIC)
    return stream


async def next_event(stream: trio.SocketStream, reader: wire.EventReader) -> wire.Event | None:
    """None: the stream has ended."""
    while True:
        event = reader.next_event()
        if event is wire.NEED_DATA:
            data = await stream.receive_some()
            if not data:
                return None
            reader.receive_data(data)
        elif isinstance(event, wire.Heartbeat):
            await stream.send_all(wire.nop())
        else:
            return event


def page_of(memory: int, verdict: str, origin: Origin) -> Page:
    """``memory``: messages that a queue keeps there."""
    return Page(
        title="Killed under load" + (", with messages in memory" if memory else ""),
        claim=CLAIM,
        verdict=f"{verdict}.",
        body=[],
        sources=[*PRODUCT, "tests/faults"],
        origin=origin,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.faults.crash", description="Kill a broker under load, again and again."
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mem-queue-size", type=int, default=0, help="messages that a queue keeps in memory")
    parser.add_argument("--document", action="store_true", help="write the page into docs/results too")
    given, started = parser.parse_args(), time.time()
    folder = RESULTS if given.document else None
    refuse_unpublishable(folder)
    with tempfile.TemporaryDirectory(prefix="srtm-crash-") as directory:
        book = run_trio(partial(run, Path(directory), given.kills, given.seed, given.mem_queue_size))
    for fault in book.faults[:20]:
        print(fault)
    print(book.verdict(given.kills))
    if folder is not None:
        name = "crash-memory" if given.mem_queue_size else "crash"
        store(folder, name, Stored(page=page_of(given.mem_queue_size, book.verdict(given.kills), Origin.here(started))))
    return 1 if book.lost or book.faults else 0


if __name__ == "__main__":
    sys.exit(main())
