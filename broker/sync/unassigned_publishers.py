"""Publishers that were seen here and belong elsewhere (design section 11). The engine names each once an assignment; so
what the leader was told is kept, for one that lacks it: where a stranger does not move, its tokens follow it only as
long as the leader knows of it, and where it does, the leader says when. Pure: no sockets, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from srtm.control import Stranger, SyncAnswer

# In all: ids are whatever clients send, and the distributor may be away for long.
MOST = 100_000  # as many as the engine tells of one topic


class Strangers:
    """In the order in which they came."""

    def __init__(self) -> None:
        self._untold: dict[Stranger, None] = {}
        self._told: dict[Stranger, None] = {}  # to whoever leads, of the assignments in force
        self._assignments: dict[str, int] = {}  # {topic: version}, as answered last

    def note(self, topic: str, publisher_id: str) -> bool:
        """False: there are too many."""
        stranger = Stranger(topic=topic, publisher_id=publisher_id)
        self._told.pop(stranger, None)
        if len(self._untold) + len(self._told) >= MOST:
            return False
        self._untold[stranger] = None
        return True

    def untold(self) -> list[Stranger]:
        return list(self._untold)

    def note_told(self, strangers: Iterable[Stranger]) -> None:
        """The leader has them."""
        for stranger in strangers:
            self._untold.pop(stranger, None)
            self._told[stranger] = None

    def tell_again(self) -> None:
        """Whoever leads now lacks what was told before."""
        self._untold = {**self._told, **self._untold}
        self._told = {}

    def follow(self, answer: SyncAnswer) -> None:
        """Under another assignment of a topic, whoever is a stranger then is named anew."""
        if answer.unchanged:
            return
        now = {topic.topic: topic.assignment_version for topic in answer.topics}
        gone = answer.removed if answer.since else self._assignments.keys() - now.keys()
        changed = {name for name, version in now.items() if self._assignments.get(name, version) != version}
        self._assignments = {**(self._assignments if answer.since else {}), **now}
        for name in gone:
            self._assignments.pop(name, None)
        if over := changed.union(gone):
            self._told = {one: None for one in self._told if one.topic not in over}
