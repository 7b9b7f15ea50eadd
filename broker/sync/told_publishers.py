"""Publishers that were told to move, and whether they did. Pure: the caller passes the time."""

from __future__ import annotations

from collections.abc import Collection

from srtm.control import Move, SyncAnswer, UnassignedPublisher

TELLINGS = 2  # one may cross with what the publisher does at that moment
STAYS_S = 5.0  # publishers that move have gone by then


class ToldPublishers:
    """Under the assignments in force."""

    def __init__(self) -> None:
        self._told: dict[UnassignedPublisher, tuple[int, float]] = {}  # {publisher: (times, s of the latest)}
        self._versions: dict[str, int] = {}  # {topic: version of the assignment that they were told under}

    def note(self, move: Move, now_s: float) -> None:
        """The publisher was told, or is a client that cannot be."""
        if self._versions.get(move.topic, move.version) != move.version:
            self._forget({move.topic})
        self._versions[move.topic] = move.version
        publisher = UnassignedPublisher(topic=move.topic, publisher_id=move.publisher_id)
        times, _ = self._told.get(publisher, (0, 0.0))
        self._told[publisher] = times + 1, now_s

    def due(self, now_s: float) -> set[UnassignedPublisher]:
        """Those that should have moved by now; each is given once."""
        found = {
            publisher
            for publisher, (times, told_s) in self._told.items()
            if times >= TELLINGS and now_s - told_s >= STAYS_S
        }
        for publisher in found:
            del self._told[publisher]
        return found

    def follow(self, answer: SyncAnswer) -> None:
        """Forget publishers of topics whose assignment changed."""
        self._forget(
            {
                topic.topic
                for topic in answer.topics
                if self._versions.get(topic.topic, topic.assignment_version) != topic.assignment_version
            }
        )

    def _forget(self, topics: Collection[str]) -> None:
        if topics:
            self._told = {one: told for one, told in self._told.items() if one.topic not in topics}
            for topic in topics:
                self._versions.pop(topic, None)
