"""Kills a broker at random instants while MQTT clients publish to a durable session, and counts what it owes
afterwards: ``python -m tests.faults.mqtt_crash --kills 20``.

Publishers use QoS 1. What a kill leaves without a PUBACK they send again, in order, to the next process. The reader's
session outlives its connection, and in some lives it is away. So do the sessions of a shared group with two members.
Each message that was acknowledged must come to the reader and to the group. Of each publisher the first copies must
come to the reader in the order in which they were sent.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.broker_process import Process, process
from tests.support.ports import pick_addresses

PUBLISHERS = 3
MEMBERS = 2  # of the shared group
WINDOW = 20  # messages of a publisher without an answer
PATIENCE_S = 60.0
_HOST = "127.0.0.1"


@dataclass
class Book:
    """What was acknowledged and what came, {publisher: numbers}; ``came`` to the reader in order, with copies;
    ``shared``: to a member of the group."""

    acknowledged: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    came: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    shared: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_until(self, goal: int) -> bool:
        """Whether so many are acknowledged in time."""
        with self.changed:
            return self.changed.wait_for(lambda: self.count >= goal, PATIENCE_S)

    @property
    def lost(self) -> dict[int, list[int]]:
        """{publisher: acknowledged numbers that did not come to the reader}, of those that miss any."""
        return self._missing({one: set(numbers) for one, numbers in self.came.items()})

    @property
    def lost_by_group(self) -> dict[int, list[int]]:
        """The same of the group."""
        return self._missing(self.shared)

    def _missing(self, came: Mapping[int, set[int]]) -> dict[int, list[int]]:
        missing = {one: sorted(numbers - came.get(one, set())) for one, numbers in self.acknowledged.items()}
        return {one: numbers for one, numbers in missing.items() if numbers}

    @property
    def twice(self) -> dict[int, int]:
        """{publisher: how many of its messages came more than once}, of those that have any."""
        copies = {one: len(numbers) - len(set(numbers)) for one, numbers in self.came.items()}
        return {one: count for one, count in copies.items() if count}

    @property
    def out_of_order(self) -> dict[int, list[tuple[int, int]]]:
        """{publisher: (number, the one that came for the first time after it although it was sent before)}"""
        parted = {}
        for one, numbers in self.came.items():
            firsts = list(dict.fromkeys(numbers))
            if wrong := [(before, after) for before, after in itertools.pairwise(firsts) if after < before]:
                parted[one] = wrong
        return parted


class Sender:
    """One publisher through all lives of the broker."""

    def __init__(self, number: int, book: Book) -> None:
        self.number, self._book = number, book
        self._next = 0
        self._unanswered: list[int] = []  # in order

    def connect(self, port: int) -> paho.Client:
        """Sends what is unanswered again, then goes on: each answer lets it send another message."""
        client = paho.Client(
            CallbackAPIVersion.VERSION2, f"sender-{self.number}", reconnect_on_failure=False, clean_session=True
        )
        client.max_inflight_messages_set(WINDOW)
        sent: dict[int, int] = {}  # {packet identifier: number}

        def send(number: int) -> None:
            sent[client.publish(f"crash/{self.number}", str(number), qos=1).mid] = number

        def answered(_client: object, _data: object, identifier: int, _reason: object, _said: object) -> None:
            number = sent.pop(identifier)
            self._unanswered.remove(number)
            with self._book.changed:
                self._book.acknowledged[self.number].add(number)
                self._book.changed.notify_all()
            send(self._new())

        def begin(*_: object) -> None:
            for number in list(self._unanswered):
                send(number)
            while len(self._unanswered) < WINDOW:
                send(self._new())

        client.on_connect, client.on_publish = begin, answered
        client.connect(_HOST, port)
        client.loop_start()
        return client

    def _new(self) -> int:
        self._unanswered.append(self._next)
        self._next += 1
        return self._unanswered[-1]


def reader(port: int, book: Book, host: str = _HOST, name: str = "reader") -> paho.Client:
    """Whose session outlives its connections."""

    def note(publisher: int, message: int) -> None:
        book.came[publisher].append(message)

    return _subscriber(host, port, name, "crash/#", book, note)


def member(port: int, book: Book, number: int) -> paho.Client:
    """One of the group, whose session outlives its connections."""

    def note(publisher: int, message: int) -> None:
        book.shared[publisher].add(message)

    return _subscriber(_HOST, port, f"member-{number}", "$share/crash/crash/#", book, note)


def _subscriber(
    host: str, port: int, name: str, pattern: str, book: Book, note: Callable[[int, int], None]
) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, name, clean_session=False, reconnect_on_failure=False)
    subscribed = threading.Event()

    def came(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        with book.changed:
            note(int(message.topic.rpartition("/")[2]), int(message.payload))
            book.changed.notify_all()

    client.on_message = came
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(host, port)
    client.subscribe(pattern, qos=1)
    client.loop_start()
    assert subscribed.wait(PATIENCE_S), "no SUBACK"
    return client


def run(directory: Path, kills: int, seed: int) -> Book:
    """Raises AssertionError where a broker does not start, or what it owes does not come in time."""
    book, chance = Book(), random.Random(seed)
    senders = [Sender(number, book) for number in range(PUBLISHERS)]
    for life in range(kills):
        with _living(directory) as (running, port):
            listening = [reader(port, book)] if life == 0 or chance.random() < 0.6 else []
            listening += [member(port, book, one) for one in range(MEMBERS) if life == 0 or chance.random() < 0.4]
            goal = book.count + chance.randrange(1, 600)
            clients = [sender.connect(port) for sender in senders]
            assert book.wait_until(goal), f"life {life}: {book.count} of {goal} messages were acknowledged"
            running.process.kill()
            stop([*clients, *listening])
    with _living(directory) as (_, port):
        listening = [reader(port, book), member(port, book, 0)]
        with book.changed:
            book.changed.wait_for(lambda: not (book.lost or book.lost_by_group), PATIENCE_S)
        stop(listening)
    return book


def stop(clients: Sequence[paho.Client]) -> None:
    for client in clients:
        client.on_publish = client.on_connect = client.on_message = None
        client.disconnect()
        client.loop_stop()


@contextmanager
def _living(directory: Path) -> Iterator[tuple[Process, int]]:
    """A broker on its data, and the port of its MQTT; ended by SIGKILL."""
    [address] = pick_addresses(1)
    flags = ("--mqtt-address", address, "--sync-every", "50", "--max-bytes-per-file", "64k")
    with process(directory, *flags) as running:
        running.wait_ready()
        yield running, int(address.rpartition(":")[2])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.mqtt_crash")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="srtm-mqtt-crash-") as directory:
        book = run(Path(directory), asked.kills, asked.seed)
    wrong = {"lost": book.lost, "lost by the group": book.lost_by_group, "out of order": book.out_of_order}
    for how, found in wrong.items():
        if found:
            print(f"{how}, by publisher: {found}", file=sys.stderr)
    failed = any(wrong.values())
    print(f"MQTT: {asked.kills} kills, seed {asked.seed}, {book.count} messages: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
