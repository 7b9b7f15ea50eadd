"""Reports by key: what the distributor does not know goes up until it is answered."""

from __future__ import annotations

import pytest

from broker.sync.differences import Differences


def told(reports: Differences[str, int], **now: int) -> dict[str, int]:
    """What goes up, and is answered."""
    reports.note(now)
    sent = reports.unsent
    reports.answered()
    return sent


@pytest.fixture(params=[None, 0])
def reports(request: pytest.FixtureRequest) -> Differences[str, int]:
    return Differences(nothing=request.param)


def test_what_was_answered_is_not_sent_again_unless_it_changes_or_the_distributor_lacks_it(
    reports: Differences[str, int],
) -> None:
    assert told(reports, a=1, b=1) == {"a": 1, "b": 1}
    assert reports.unsent == {}
    assert told(reports, a=2, b=1) == {"a": 2}
    reports.send_again()
    assert told(reports, a=2, b=1) == {"a": 2, "b": 1}


def test_what_was_sent_in_vain_is_sent_again_without_another_look(reports: Differences[str, int]) -> None:
    reports.note({"a": 1})
    assert reports.unsent == reports.unsent == {"a": 1}
    reports.answered()
    assert reports.unsent == {}


def test_what_is_no_more_is_told_once_as_nothing() -> None:
    reports = Differences[str, int](nothing=0)
    told(reports, a=1, b=1)
    assert told(reports, b=1) == {"a": 0}
    assert told(reports, b=1) == {}
    assert told(reports, a=1, b=1) == {"a": 1}


def test_without_a_word_for_nothing_what_is_no_more_is_forgotten_untold() -> None:
    reports = Differences[str, int]()
    told(reports, a=1)
    assert told(reports) == {}
    assert reports.known == {}
    assert told(reports, a=1) == {"a": 1}
