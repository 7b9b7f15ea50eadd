"""The book of the kills: what it calls lost, and what out of order."""

from __future__ import annotations

import pytest

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
from tests.faults.mqtt_crash import Book


def test_what_was_acknowledged_and_did_not_come_is_lost() -> None:
    book = Book()
    book.acknowledged[0] |= {0, 1, 2}
    book.came[0] += [0, 2]
    book.came[1] += [0, 1]
    book.shared[0] |= {0, 1}
    assert (book.lost, book.lost_by_group, book.count) == ({0: [1]}, {0: [2]}, 3)


def test_copies_are_no_disorder_and_an_older_message_for_the_first_time_is() -> None:
    book = Book()
    book.came[0] += [0, 1, 0, 1, 2]
    assert (book.out_of_order, book.twice) == ({}, {0: 2})
    book.came[1] += [0, 2, 1, 2]
    assert book.out_of_order == {1: [(2, 1)]}
