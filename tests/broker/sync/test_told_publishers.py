"""Publishers that were told to move."""

from __future__ import annotations

from broker.sync.told_publishers import STAYS_S, ToldPublishers
from srtm.control import DesiredTopic, Move, Share, SyncAnswer, UnassignedPublisher

P1 = UnassignedPublisher(topic="cars", publisher_id="p1")


def move(version: int = 3) -> Move:
    return Move(topic="cars", publisher_id="p1", address="h:1", version=version)


def assigned(version: int) -> SyncAnswer:
    share = Share(version=version, rate=1.0, burst=1.0)
    return SyncAnswer(version=version, topics=[DesiredTopic(topic="cars", share=share, assignment_version=version)])


def told(*times_s: float) -> ToldPublishers:
    made = ToldPublishers()
    for time_s in times_s:
        made.note(move(), time_s)
    return made


def test_whoever_was_told_twice_is_due_once_5_s_later():
    there = told(0.0, 1.0)
    assert there.due(1.0 + STAYS_S - 0.1) == set()
    assert there.due(1.0 + STAYS_S) == {P1}
    assert there.due(100.0) == set()


def test_whoever_was_told_once_is_not_due():
    assert told(0.0).due(100.0) == set()


def test_another_assignment_begins_anew():
    there = told(0.0, 1.0)
    there.follow(assigned(4))
    assert there.due(100.0) == set()
    there = told(0.0)
    there.note(move(version=4), 1.0)
    assert there.due(100.0) == set()


def test_the_same_assignment_again_changes_nothing():
    there = told(0.0, 1.0)
    there.follow(assigned(3))
    assert there.due(100.0) == {P1}
