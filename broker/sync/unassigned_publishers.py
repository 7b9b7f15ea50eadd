"""Publishers that send to this broker without being assigned to it. Pure.

The engine names each of them once per assignment. What was sent to the distributor is kept, for a leader that lacks it:
the leader tells a publisher when to move, and tokens follow one that does not move only while the leader knows of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from srtm.control import SyncAnswer, UnassignedPublisher

# In all: clients choose the ids, and the distributor may be away for long. The engine names as many of one topic.
MAX_PUBLISHERS = 100_000


class UnassignedPublishers:
    """In the order in which they were seen."""

    def __init__(self) -> None:
        self._unsent: dict[UnassignedPublisher, None] = {}
        self._sent: dict[UnassignedPublisher, None] = {}  # to the present leader, under the assignments in force
        self._assignments: dict[str, int] = {}  # {topic: version}, of the latest answer

    def add(self, topic: str, publisher_id: str) -> bool:
        """Returns False if there are too many."""
        publisher = UnassignedPublisher(topic=topic, publisher_id=publisher_id)
        self._sent.pop(publisher, None)
        if len(self._unsent) + len(self._sent) >= MAX_PUBLISHERS:
            return False
        self._unsent[publisher] = None
        return True

    def unsent(self) -> list[UnassignedPublisher]:
        return list(self._unsent)

    def note_sent(self, publishers: Iterable[UnassignedPublisher]) -> None:
        """The leader has them."""
        for publisher in publishers:
            self._unsent.pop(publisher, None)
            self._sent[publisher] = None

    def send_again(self) -> None:
        """The present leader lacks what was sent before."""
        self._unsent = {**self._sent, **self._unsent}
        self._sent = {}

    def follow(self, answer: SyncAnswer) -> None:
        """Forget publishers of topics whose assignment changed: the engine names them anew."""
        if answer.unchanged:
            return
        now = {topic.topic: topic.assignment_version for topic in answer.topics}
        gone = answer.removed if answer.since else self._assignments.keys() - now.keys()
        changed = {name for name, version in now.items() if self._assignments.get(name, version) != version}
        self._assignments = {**(self._assignments if answer.since else {}), **now}
        for name in gone:
            self._assignments.pop(name, None)
        if ended := changed.union(gone):
            self._sent = {publisher: None for publisher in self._sent if publisher.topic not in ended}
