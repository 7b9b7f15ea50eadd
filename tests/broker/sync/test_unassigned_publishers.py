"""Who is told of, when again, and when no more."""

import pytest

from broker.sync import unassigned_publishers as strangers
from broker.sync.unassigned_publishers import Strangers
from srtm.control import DesiredTopic, Share, Stranger, SyncAnswer

SHARE = Share(version=1, rate=1.0, burst=1.0, full=False)


def answer(*topics, since=0, removed=(), unchanged=False):
    """``topics``: (name, version of its assignment)."""
    desired = [
        DesiredTopic(topic=name, share=SHARE, publishers=[], channels=[], assignment_version=version)
        for name, version in topics
    ]
    return SyncAnswer(version=9, since=since, topics=desired, removed=list(removed), unchanged=unchanged)


def ids(found):
    return [one.publisher_id for one in found]


@pytest.fixture
def told():
    """p1 of topic t and p2 of topic u, under assignments 1."""
    book = Strangers()
    book.follow(answer(("t", 1), ("u", 1)))
    book.note("t", "p1")
    book.note("u", "p2")
    book.note_told(book.untold())
    return book


def test_what_was_told_is_not_told_again_but_to_a_leader_that_lacks_it(told):
    assert told.untold() == []
    told.note("t", "p3")
    told.tell_again()
    assert ids(told.untold()) == ["p1", "p2", "p3"]


def test_what_the_latest_request_told_is_known_to_a_leader_that_lacks_the_rest(told):
    told.note("t", "p3")
    said = told.untold()
    told.tell_again()
    told.note_told(said)
    assert ids(told.untold()) == ["p1", "p2"]


@pytest.mark.parametrize(
    ("news", "left"),
    [
        (answer(("t", 1), ("u", 1)), ["p1", "p2"]),
        (answer(("t", 2), ("u", 1)), ["p2"]),
        (answer(("t", 2), since=5), ["p2"]),
        (answer(("t", 1), since=5), ["p1", "p2"]),
        (answer(since=5, removed=["u"]), ["p1"]),
        (answer(("u", 1)), ["p2"]),
        (answer(unchanged=True), ["p1", "p2"]),
    ],
)
def test_of_another_assignment_or_none_what_was_told_is_forgotten(told, news, left):
    told.follow(news)
    told.tell_again()
    assert ids(told.untold()) == left


def test_who_is_named_anew_is_told_anew(told):
    assert told.note("t", "p1")
    assert told.untold() == [Stranger(topic="t", publisher_id="p1")]


def test_all_together_are_bounded(told, monkeypatch):
    monkeypatch.setattr(strangers, "MOST", 3)
    assert [told.note("t", f"n{number}") for number in range(3)] == [True, False, False]
    told.tell_again()
    assert len(told.untold()) == 3
