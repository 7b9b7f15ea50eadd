"""Who is told of, when again, and when no more."""

import pytest

from broker.sync import unassigned_publishers as unassigned_publishers
from broker.sync.unassigned_publishers import UnassignedPublishers
from srtm.control import DesiredTopic, Share, SyncAnswer, UnassignedPublisher

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
    book = UnassignedPublishers()
    book.follow(answer(("t", 1), ("u", 1)))
    book.add("t", "p1")
    book.add("u", "p2")
    book.note_sent(book.unsent())
    return book


def test_what_was_told_is_not_told_again_but_to_a_leader_that_lacks_it(told):
    assert told.unsent() == []
    told.add("t", "p3")
    told.send_again()
    assert ids(told.unsent()) == ["p1", "p2", "p3"]


def test_what_the_latest_request_told_is_known_to_a_leader_that_lacks_the_rest(told):
    told.add("t", "p3")
    said = told.unsent()
    told.send_again()
    told.note_sent(said)
    assert ids(told.unsent()) == ["p1", "p2"]


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
    told.send_again()
    assert ids(told.unsent()) == left


def test_who_is_named_anew_is_told_anew(told):
    assert told.add("t", "p1")
    assert told.unsent() == [UnassignedPublisher(topic="t", publisher_id="p1")]


def test_all_together_are_bounded(told, monkeypatch):
    monkeypatch.setattr(unassigned_publishers, "MAX_PUBLISHERS", 3)
    assert [told.add("t", f"n{number}") for number in range(3)] == [True, False, False]
    told.send_again()
    assert len(told.unsent()) == 3
