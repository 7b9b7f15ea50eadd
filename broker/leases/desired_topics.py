"""The topics that the distributor wants here, as in force, and what follows from them: kept as they change, for whoever
asks with every sync. Pure."""

from __future__ import annotations

from typing import TypeVar

from srtm.control import DesiredTopic, Exchange, Share

# Held over from an earlier incarnation, until the first sync.
NOTHING = Share(version=0, rate=0.0, burst=0.0)

V = TypeVar("V")


class DesiredTopics:
    """``all``: by name; change them by ``put`` and ``drop``. ``applied``: {topic: version of its share}, but for those
    held over; ``recalled``: topics whose tokens the distributor wants to know exactly; ``timed``: {topic: lease_s} of
    shares that end; ``followed``: {topic: whether it may be told seldom} where histories are wanted; ``exchanges``:
    {topic: how it may be exchanged among brokers}. ``changes`` of any of it so far, ``changes_followed`` of that."""

    def __init__(self) -> None:
        self.all: dict[str, DesiredTopic] = {}
        self.applied: dict[str, int] = {}
        self.recalled: dict[str, bool] = {}
        self.timed: dict[str, float] = {}
        self.followed: dict[str, bool] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.changes = 0
        self.changes_followed = 0

    def put(self, topic: DesiredTopic) -> None:
        """Instead of its namesake."""
        self.all[topic.topic] = topic
        self._note(topic.topic, topic)

    def drop(self, name: str) -> None:
        del self.all[name]
        self._note(name, None)

    def _note(self, name: str, topic: DesiredTopic | None) -> None:
        share = topic.share if topic is not None else NOTHING
        was_followed = self.followed.get(name)
        _keep(self.applied, name, share.version if share is not NOTHING else None)
        _keep(self.recalled, name, share.recall or None)
        _keep(self.timed, name, share.lease_s)
        _keep(self.followed, name, topic.steady_histories if topic is not None and topic.histories else None)
        _keep(self.exchanges, name, topic.exchange if topic is not None else None)
        self.changes += 1
        self.changes_followed += was_followed != self.followed.get(name)


def _keep(values: dict[str, V], name: str, value: V | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
