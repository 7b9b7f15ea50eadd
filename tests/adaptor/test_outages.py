"""What the adaptor makes of brokers that go, of times of which it heard nothing, and of clocks that are set back."""

from __future__ import annotations

import re

from adaptor.topics import TopicStates
from tests.adaptor.test_topics import SHARES, counts, history, told

BEFORE = ("b1", history(0, counts(500, 50, 1))), ("b2", history(0, [*counts(500, 49, 2), 0]))


def test_a_broker_that_has_no_part_any_more_is_forgotten() -> None:
    book = TopicStates()
    book.take(told(*BEFORE), 5.0)
    book.take(told(shares={"b2": SHARES["b2"], "b3": (1.0, 1.0)}), 5.1)
    found = book.take(told(("b1", history(51, [450] * 2, waiting=[2_000] * 2))), 5.3)
    assert "b1 4,500" in found[0].reason


def test_what_was_known_before_a_long_time_of_which_nothing_is_known_does_not_count() -> None:
    book = TopicStates()
    both = [(name, history(0, counts(500, 50, 1))) for name in ("b1", "b2")]
    book.take(told(*both), 5.0)
    hours = 200_000
    found = book.take(
        told(("b1", history(hours, [400] * 2)), ("b2", history(hours, [450] * 2, waiting=[1_800] * 2))), 2e4
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
