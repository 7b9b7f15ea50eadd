"""Whether the topics that were there keep their promise while another one is measured beside them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.sync.measurement_report import NS_PER_S, OtherPromises
from srtm.control import Promise

PROMISE = Promise(topic="old", percentile=90.0, target_ns=1_000)
GOOD, LATE = (100, 10), (100, 11)  # messages of a second, those of them that were late


class Scripted:
    """Each second as it is told: messages measured, late, and never measured."""

    def __init__(self, seconds: Sequence[tuple[int, int, int]]) -> None:
        self._seconds = iter(seconds)
        self._now = (0, 0, 0)
        self._unsent = 0

    def advance(self) -> None:
        self._now = next(self._seconds)
        self._unsent += self._now[2]

    def intervals(self, _end: bool) -> tuple[list[int], list[int], list[int], list[int]]:
        return [], [], [], []

    def percentiles(self, _percentile: float) -> tuple[int, int, int, int]:
        raise AssertionError("nobody asks")

    def recent(self, _percentile: float) -> tuple[int, int, int]:
        count, late, _ = self._now
        return count, late, 7 * late

    def gaps(self) -> tuple[int, int]:
        return 0, self._unsent

    def recording(self) -> tuple[list[str], list[int], int, list[int], list[int], list[int]]:
        raise AssertionError("nobody asks")


def looked(*seconds: tuple[int, int, int]) -> list[bool]:
    """Whether the promise was kept, after each second."""
    recorder = Scripted(seconds)
    others = OtherPromises(lambda _topic, _target_ns: recorder, 0)
    kept = []
    for second in range(1, len(seconds) + 1):
        others.check([PROMISE], second * NS_PER_S)
        kept.append(others.kept)
    return kept


def test_a_second_with_more_late_messages_than_its_percentile_allows_is_broken_and_the_next_is_judged_by_itself() -> (
    None
):
    assert looked((*GOOD, 0), (*LATE, 0), (*GOOD, 0), (0, 0, 0)) == [True, False, True, True]


def test_a_promise_that_was_broken_stays_so_while_its_messages_take_too_long_to_be_measured() -> None:
    assert looked((*LATE, 0), (0, 0, 90), (40, 2, 50), (*GOOD, 11)) == [False, False, False, True]


def test_a_promise_that_was_kept_stays_kept_while_no_subscriber_takes_its_messages() -> None:
    assert looked((*GOOD, 0), (0, 0, 90), (0, 0, 90)) == [True, True, True]


@pytest.mark.parametrize(("unsent", "kept"), [(11, True), (12, False)])
def test_as_many_unmeasured_messages_as_may_be_late_leave_a_second_known(unsent: int, kept: bool) -> None:
    assert looked((*LATE, 0), (100, 0, unsent)) == [False, kept]


@pytest.mark.parametrize("error", [ValueError("no such topic"), OverflowError("out of range")])
def test_a_promise_that_cannot_be_measured_here_counts_as_kept_and_ends_nothing(error: Exception) -> None:
    def refused(_topic: str, _target_ns: int) -> Scripted:
        raise error

    others = OtherPromises(refused, 0)
    assert others.check([PROMISE], NS_PER_S)
    assert others.kept
