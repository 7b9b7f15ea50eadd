"""What the crash harness holds a broker to: all acknowledged or written, but for what memory alone can have had."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from tests.faults.expected_messages import Book


def test_a_message_is_owed_to_each_channel_from_its_ok_until_that_channel_has_finished_it() -> None:
    book = Book()
    book.settle("b", b"early")  # its OK was on the way still
    book.acknowledge([b"early", b"late"])
    assert book.owed == {"a": {b"early", b"late"}, "b": {b"late"}}
    book.settle("a", b"late")
    assert (book.owed["a"], book.lost) == ({b"early"}, 2)


def test_what_a_kill_finds_on_disk_is_owed_also_where_nobody_was_told_ok() -> None:
    book = Book()
    book.settle("a", b"done")
    book.note_kill(0, "a", Counter([b"done", b"unanswered"]), memory=0)
    assert (book.owed["a"], book.kept["a"], book.faults) == ({b"unanswered"}, {b"unanswered"}, [])


def test_what_memory_alone_had_is_not_owed_after_a_kill() -> None:
    book = Book()
    book.acknowledge([b"1", b"2", b"3"])
    book.note_kill(0, "a", Counter([b"2"]), memory=2)
    assert (book.owed["a"], book.gone["a"], book.faults) == ({b"2"}, {b"1", b"3"}, [])


def test_more_than_memory_can_have_had_is_a_fault_and_stays_owed() -> None:
    book = Book()
    book.acknowledge([b"1", b"2", b"3"])
    book.note_kill(7, "a", Counter([b"2"]), memory=1)
    assert book.faults == ["life 7: 2 messages owed to channel a were not on disk"]
    assert (book.owed["a"], book.gone["a"]) == ({b"1", b"2", b"3"}, set())


def test_the_verdict_fails_on_a_lost_message_or_a_fault_alone() -> None:
    book = Book(faults=["x"])
    assert book.verdict(1).endswith("FAILED")
    book.faults.clear()
    assert book.verdict(1).endswith("passed")
    book.acknowledge([b"1"])
    assert "2 lost" in book.verdict(1)
    assert book.verdict(1).endswith("FAILED")


async def test_waiting_ends_when_all_is_settled_and_fails_when_nothing_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    book = Book()
    book.acknowledge([b"1"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(book.wait_until_settled)
        for channel in ("a", "b"):
            await trio.testing.wait_all_tasks_blocked()
            book.settle(channel, b"1")
    with pytest.raises(trio.TooSlowError):
        await book.wait_until_acknowledged(2)
