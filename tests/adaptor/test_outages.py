"""What the adaptor makes of times in which it heard nothing, of brokers that go, and of clocks that are set back."""

from __future__ import annotations

import re

import pytest

from adaptor.topics import TopicStates
from tests.adaptor.test_topics import SHARES, after, counts, history, told

BEFORE = ("b1", history(0, counts(500, 50, 1))), ("b2", history(0, [*counts(500, 49, 2), 0]))


@pytest.mark.parametrize("is_lost", [False, True])
def test_silence_while_the_distributor_was_away_is_no_end_of_traffic(is_lost: bool) -> None:
    book = TopicStates()
    book.take(told(*BEFORE), 5.0)
    if is_lost:
        for at_s in (5.1, 8.0, 12.0):
            book.disconnected(at_s)
    found = book.take(told(("b1", history(50, counts(500, 140, 3), waiting=[500] * 140))), 19.1)
    assert (re.search("b2 4,[89]", found[0].reason) is not None) == is_lost


def test_who_stays_silent_once_the_distributor_is_back_has_no_traffic_after_a_while() -> None:
    book, shares, got = TopicStates(), dict(SHARES), []
    book.take(told(("b1", history(0, counts(500, 100, 1))), ("b2", history(0, [*counts(500, 99, 2), 0]))), 10.0)
    book.disconnected(13.0)
    for second in range(25):
        news = ("b1", history(130 + 10 * second, counts(500, 10, 3), waiting=[50] * 10))
        found = book.take(told(news, shares=shares), 14.0 + second)
        shares = after(found) if found else shares
        got.append(shares["b2"][0])
    assert min(got[:9]) > 4_500 > got[-1]


def test_a_broker_that_has_no_part_any_more_is_forgotten() -> None:
    book = TopicStates()
    book.take(told(*BEFORE), 5.0)
    book.take(told(shares={"b2": SHARES["b2"], "b3": (1.0, 1.0)}), 5.1)
    found = book.take(told(("b1", history(51, [450] * 2, waiting=[900] * 2))), 5.3)
    assert "b1 4,500" in found[0].reason


def test_what_was_known_before_a_long_time_of_which_nothing_is_known_does_not_count() -> None:
    book = TopicStates()
    both = [(name, history(0, counts(500, 50, 1))) for name in ("b1", "b2")]
    book.take(told(*both), 5.0)
    hours = 200_000
    found = book.take(
        told(("b1", history(hours, [490] * 2)), ("b2", history(hours, [450] * 2, waiting=[900] * 2))), 2e4
    )
    assert "b2 4,500" in found[0].reason


def test_bins_of_a_clock_that_was_set_back_count() -> None:
    book = TopicStates()
    both = [(name, history(500, counts(500, 50, 1))) for name in ("b1", "b2")]
    book.take(told(*both), 5.0)
    found = book.take(told(("b1", history(300, [100] * 2)), ("b2", history(550, [900] * 2, waiting=[0, 900]))), 5.2)
    assert re.match(r"msg/s: b1 4,8\d\d, b2 5,1\d\d$", found[0].reason)


def test_bins_that_are_told_again_after_an_outage_do_not_count_twice() -> None:
    book = TopicStates()
    told_before = [(name, history(0, counts(500, 50, seed))) for seed, name in enumerate(("b1", "b2"))]
    book.take(told(*told_before), 5.0)
    again = [("b1", history(10 * part, [100] * 10)) for part in range(5)]
    assert book.take(told(*again), 5.2) == []
