"""The managed topics in force on this broker, and what follows from them, kept up to date with every change. Pure."""

from __future__ import annotations

from typing import TypeVar

from srtm.control import DesiredTopic, Exchange, Share

# Of a topic that an earlier incarnation left, until the first sync.
NOTHING = Share(version=0, rate=0.0, burst=0.0)

V = TypeVar("V")


class DesiredTopics:
    """Change them by ``put`` and ``drop``."""

    def __init__(self) -> None:
        self.all: dict[str, DesiredTopic] = {}  # by name
        self.applied: dict[str, int] = {}  # {topic: version of its share}, without those left by an earlier incarnation
        self.recalled: dict[str, bool] = {}  # topics whose tokens the distributor wants to know exactly
        self.timed: dict[str, float] = {}  # {topic: lease, s} of shares that end
        self.followed: dict[str, bool] = {}  # {topic: whether steady traffic need not be reported}, with histories
        self.exchanges: dict[str, Exchange] = {}  # {topic: how brokers may exchange its tokens}
        self.changes = 0  # so far, of any of this
        self.changes_followed = 0  # so far, of ``followed``

    def put(self, topic: DesiredTopic) -> None:
        """Add or replace a topic."""
        self.all[topic.topic] = topic
        self._note(topic.topic, topic)

    def drop(self, name: str) -> None:
        """Remove a topic."""
        del self.all[name]
        self._note(name, None)

    def _note(self, name: str, topic: DesiredTopic | None) -> None:
        share = topic.share if topic is not None else NOTHING
        was_followed = self.followed.get(name)
        _set_or_drop(self.applied, name, share.version if share is not NOTHING else None)
        _set_or_drop(self.recalled, name, share.recall or None)
        _set_or_drop(self.timed, name, share.lease_s)
        _set_or_drop(self.followed, name, topic.steady_histories if topic is not None and topic.histories else None)
        _set_or_drop(self.exchanges, name, topic.exchange if topic is not None else None)
        self.changes += 1
        self.changes_followed += was_followed != self.followed.get(name)


def _set_or_drop(values: dict[str, V], name: str, value: V | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
