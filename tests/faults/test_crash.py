"""The crash harness's books: which second delivery has a reason, and which is a fault."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest
import trio

from srtm import protocol as wire
from tests.faults.crash import Life, answer
from tests.faults.expected_messages import Book

DRAW_FIN = 0.9
DRAW_REQUEUE = 0.0


def life() -> Life:
    return Life(number=3, port=1, process=cast(trio.Process, None))


def message(body: bytes) -> wire.Message:
    return wire.Message(timestamp_ns=0, attempts=1, id=b"0" * 16, body=body)


def deliver(life: Life, book: Book, body: bytes, draw: float = DRAW_FIN) -> None:
    answer(life, book, "a", message(body), draw)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_what_kills_left_on_disk_comes_as_often_as_it_is_there_at_most(copies: int) -> None:
    now, book = life(), Book()
    book.note_kill(2, "a", Counter({b"2/0/7 x": copies}), 0)
    for _ in range(copies):
        deliver(now, book, b"2/0/7 x")
    assert book.faults == []
    deliver(now, book, b"2/0/7 x")
    assert book.faults == ["life 3: b'2/0/7 x' came twice to channel a for no reason"]


def test_what_this_life_published_comes_once() -> None:
    now, book = life(), Book()
    deliver(now, book, b"3/0/7 x")
    deliver(now, book, b"3/0/7 x")
    assert book.faults == ["life 3: b'3/0/7 x' came twice to channel a for no reason"]


@pytest.mark.parametrize("number", [2, 3])
def test_what_was_requeued_or_delivered_in_an_earlier_life_comes_again(number: int) -> None:
    now, book, body = life(), Book(), f"{number}/0/7 x".encode()
    deliver(now, book, body, DRAW_REQUEUE)
    deliver(now, book, body)
    book.delivered["a"].add(b"1/0/1 y")
    deliver(now, book, b"1/0/1 y")
    assert (book.faults, book.redelivered["a"]) == ([], 2)


def test_what_no_kill_found_on_disk_must_not_come() -> None:
    now, book = life(), Book()
    book.gone["a"].add(b"2/0/7 x")
    deliver(now, book, b"2/0/7 x")
    assert book.faults == ["life 3: b'2/0/7 x' came to channel a, and was not on disk"]
