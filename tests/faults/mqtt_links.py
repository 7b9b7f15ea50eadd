"""Cuts and heals each link between three brokers while MQTT clients publish: ``python -m tests.faults.mqtt_links
--seconds 600``.

Brokers and a distributor run as processes in network namespaces (``tests.faults.soak_broker``). Each broker has a
publisher with QoS 1 and a subscriber to all of them, whose connections stay good. Between two brokers one direction is
cut, or the other, or both; then the links of a whole broker are cut, or lose, repeat, delay and reorder packets. After
each fault all subscribers must get what is published then.

Each message that was acknowledged must come to each subscriber, of each publisher in order, and none twice: brokers
know again what a link brings twice, and none of them is killed here.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
import trio
from paho.mqtt.enums import CallbackAPIVersion

from bench.harness.machine.lossy_link import CUT, GOOD, Quality
from tests.faults.mqtt_crash import PATIENCE_S, Book, reader, stop
from tests.faults.program import check_means, status_of
from tests.faults.soak_broker import Broker, forward_between_brokers, new_broker, until_answer

BROKERS = (1, 2, 3)
_PORT = 1883
_BURST = 5  # messages of a publisher without an answer
_BEAT_S = 0.02
_HELD_S = (0.5, 3.0)  # how long a fault lasts
_HELD_BACK = 3 * _BURST  # messages of a publisher that a cut holds back; fewer may be on their way
_BAD = Quality(loss=0.05, twice=0.1, delay_ms=20.0, jitter_ms=60.0)
_PROBE = 100  # added to a publisher's number: messages that nobody counts

Fault = tuple[str, Callable[[bool], Awaitable[None]]]  # what, and how it begins (True) and is healed


def address(number: int) -> str:
    return f"10.78.{number}.2"


class Sender(threading.Thread):
    """Publishes to a broker until ``end``. ``failed``: what ended it before."""

    def __init__(self, number: int, book: Book) -> None:
        super().__init__()
        self.failed: Exception | None = None
        self._number, self._book = number, book
        self._ends = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, f"sender-{number}", reconnect_on_failure=False)
        self.client.connect(address(number), _PORT)
        self.client.loop_start()

    def run(self) -> None:
        try:
            for first in itertools.count(0, _BURST):
                self._publish(range(first, first + _BURST))
                if self._ends.wait(_BEAT_S):
                    break
        except Exception as error:  # noqa: BLE001 - told by who waits for it
            self.failed = error

    def _publish(self, numbers: Sequence[int]) -> None:
        """Until all are acknowledged. Raises TimeoutError."""
        sent = [self.client.publish(f"crash/{self._number}", str(number), qos=1) for number in numbers]
        for number, one in zip(numbers, sent, strict=True):
            one.wait_for_publish(PATIENCE_S)
            if not one.is_published():
                raise TimeoutError(f"publisher {self._number}: message {number} was not acknowledged")
            with self._book.changed:
                self._book.acknowledged[self._number].add(number)

    def probe(self) -> None:
        self.client.publish(f"crash/{self._number + _PROBE}", "0", qos=1).wait_for_publish(PATIENCE_S)

    def end(self) -> None:
        self._ends.set()
        self.join(PATIENCE_S)


def faults(brokers: Sequence[Broker]) -> list[Fault]:
    """One of each."""
    found: list[Fault] = []

    def cut(ways: Sequence[tuple[Broker, Broker]]) -> Callable[[bool], Awaitable[None]]:
        async def change(begins: bool) -> None:
            for here, there in ways:
                await here.cut_way_to(there.number, begins)

        return change

    def spoil(broker: Broker, quality: Quality) -> Callable[[bool], Awaitable[None]]:
        async def change(begins: bool) -> None:
            await broker.set_link(quality if begins else GOOD)

        return change

    for one, other in itertools.combinations(brokers, 2):
        there, back = (one, other), (other, one)
        for name, ways in (("to", [there]), ("from", [back]), ("to and from", [there, back])):
            found.append((f"{one.name} cut {name} {other.name}", cut(ways)))
    for broker in brokers:
        found += [(f"{broker.name} cut off", spoil(broker, CUT)), (f"{broker.name} badly linked", spoil(broker, _BAD))]
    return found


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[list[Broker]]:
    """Brokers that speak MQTT, and a distributor that knows them. Raises Unavailable."""
    async with AsyncExitStack() as stack:
        forward_between_brokers()
        command = [sys.executable, "-m", "srtm", "distributor", "--http-address", "0.0.0.0:4190"]
        command += ["--store", f"sqlite:///{directory / 'store.sqlite3'}"]
        distributor = await trio.lowlevel.open_process(command, stderr=subprocess.DEVNULL)
        stack.callback(distributor.kill)
        await until_answer("127.0.0.1:4190")
        brokers = []
        for number in BROKERS:
            broker = await new_broker(number, directory, stack)
            broker.flags = ("--mqtt-address", f"{address(number)}:{_PORT}", "--mqtt-allow-anonymous")
            await broker.start()
            await until_answer(broker.http_address)  # it takes clients from then on
            assert broker.process is not None
            stack.callback(broker.process.kill)
            brokers.append(broker)
        yield brokers


def wait(books: Sequence[Book], holds: Callable[[Book], bool]) -> bool:
    """Whether that is so for all in time; what came and what was acknowledged have one condition."""
    with books[0].changed:
        return books[0].changed.wait_for(lambda: all(map(holds, books)), PATIENCE_S)


def wait_linked(senders: Sequence[Sender], books: Sequence[Book]) -> None:
    """Until each broker's messages come to all: what is published before that may be for nobody."""
    wanted = {_PROBE + number for number in BROKERS}
    with books[0].changed:
        for _ in range(round(PATIENCE_S)):
            for sender in senders:
                sender.probe()
            if books[0].changed.wait_for(lambda: all(wanted <= book.came.keys() for book in books), 1.0):
                return
    raise TimeoutError("the brokers were not linked in time")


async def run(directory: Path, seconds: float, seed: int) -> list[str]:
    """Returns what is not as it must be, in words. Each fault comes at least once."""
    chance = random.Random(seed)
    first = Book()
    books = [first, *(Book(acknowledged=first.acknowledged, changed=first.changed) for _ in BROKERS[1:])]
    failures: list[str] = []
    async with running(directory) as brokers:
        in_thread = trio.to_thread.run_sync
        readers = [
            await in_thread(reader, _PORT, book, address(number), f"reader-{number}")
            for number, book in zip(BROKERS, books, strict=True)
        ]
        senders = [Sender(number, first) for number in BROKERS]
        await in_thread(wait_linked, senders, books)
        for sender in senders:
            sender.start()
        ends_s, count = trio.current_time() + seconds, 0
        kinds = faults(brokers)
        while count < len(kinds) or trio.current_time() < ends_s:
            if count % len(kinds) == 0:
                chance.shuffle(kinds)
            what, change = kinds[count % len(kinds)]
            print(what, flush=True)
            await change(True)
            await trio.sleep(chance.uniform(*_HELD_S))
            goal = _goal(first)
            if " cut " in what and not any(_behind(goal, book) >= _HELD_BACK for book in books):
                failures.append(f"{what}: all came nevertheless, which shows nothing")
            await change(False)
            count += 1
            goal = _goal(first)
            caught_up = partial(_has_come, goal)
            if not await in_thread(wait, books, caught_up):
                failures.append(f"after {what}: not everything came within {PATIENCE_S:g} s")
                break
        for sender in senders:
            await in_thread(sender.end)
            failures += [str(sender.failed)] * (sender.failed is not None)
        await in_thread(wait, books, lambda book: not book.lost)
        stop([*readers, *(sender.client for sender in senders)])
    for number, book in zip(BROKERS, books, strict=True):
        for one in BROKERS:
            book.came.pop(_PROBE + one, None)
        wrong = {"lost": book.lost, "out of order": book.out_of_order, "twice": book.twice}
        failures += [f"at b{number}, {how}, by publisher: {found}" for how, found in wrong.items() if found]
    print(f"links: {count} faults, seed {seed}, {first.count} messages: {'FAILED' if failures else 'passed'}")
    return failures


def _goal(book: Book) -> dict[int, int]:
    """{publisher: the latest number that was acknowledged}"""
    with book.changed:
        return {one: max(numbers) for one, numbers in book.acknowledged.items() if numbers}


def _behind(goal: dict[int, int], book: Book) -> int:
    """How many messages of a publisher a subscriber lacks, at most. It looks at the last that came: they come in order,
    and whoever waits asks with each of them."""
    return max((number - (book.came[one] or [-1])[-1] for one, number in goal.items()), default=0)


def _has_come(goal: dict[int, int], book: Book) -> bool:
    return _behind(goal, book) <= 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.mqtt_links")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="an empty one, kept with all data and logs; default: none is")
    asked = parser.parse_args(arguments)
    return status_of(check_means, partial(run, seconds=asked.seconds, seed=asked.seed), asked.directory)


if __name__ == "__main__":
    sys.exit(main())
