"""All topics, and what follows from all of them: kept up to date as single topics change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distributor.model.broker_load import BrokerLoad, loads_after
from distributor.model.change_log import Changes
from distributor.model.cluster import Topic
from distributor.placement.headroom import Headroom
from distributor.registry.broker_updates import is_removal_pending


class TopicTable:
    """``topics``: {name: topic}, removed ones too; replaced, never changed in place."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.changes = Changes()
        self.pending_removals: set[str] = set()  # removed topics of which brokers may still hold a share
        self._pooled: set[str] = set()  # topics whose tokens brokers exchange among themselves
        self._loads: tuple[int, Mapping[str, BrokerLoad]] = (0, {})  # (changes counted, loads as of then)
        self._headroom: Headroom | None = None  # made when first asked for: a standby does not need it

    def reset(self, topics: Mapping[str, Topic]) -> None:
        """Replace all topics."""
        self.changes.note({**self.topics, **topics})
        self.topics = dict(topics)
        self.pending_removals = {name for name, topic in topics.items() if is_removal_pending(topic)}
        self._pooled = {name for name, topic in topics.items() if topic.leases.pool}
        self._headroom = None

    def replace(self, topics: Iterable[Topic]) -> None:
        """Replace the topics of the same names."""
        topics = list(topics)
        self.changes.note(topic.name for topic in topics if self.topics.get(topic.name) is not topic)
        if self._headroom is not None:
            for topic in topics:
                self._headroom.note_change(self.topics.get(topic.name), topic)
        self.topics = {**self.topics, **{topic.name: topic for topic in topics}}
        for topic in topics:
            _set_member(self.pending_removals, topic.name, member=is_removal_pending(topic))
            _set_member(self._pooled, topic.name, member=topic.leases.pool > 0)

    def forget(self, names: Iterable[str]) -> None:
        """Drop removed topics of which no broker may still hold a share."""
        gone = set(names)
        self.topics = {name: topic for name, topic in self.topics.items() if name not in gone}
        for name in gone:
            self.changes.forget(name)

    def managed(self) -> list[Topic]:
        """Topics that are not removed."""
        return [topic for topic in self.topics.values() if not topic.removed]

    def pooled_on(self, broker: str) -> list[str]:
        """Topics with publishers on ``broker`` whose tokens brokers exchange among themselves."""
        return [name for name in self.headroom.topics_on(broker) if name in self._pooled] if self._pooled else []

    @property
    def loads(self) -> Mapping[str, BrokerLoad]:
        """{broker: its load from all topics}, of the brokers that have publishers."""
        counted, loads = self._loads
        if counted != self.changes.count:
            loads = loads_after(loads, self.changes.since(counted), self.topics)
            self._loads = self.changes.count, loads
        return loads

    @property
    def headroom(self) -> Headroom:
        """The load of every broker, kept as topics change."""
        if self._headroom is None:
            self._headroom = Headroom()
            for topic in self.topics.values():
                self._headroom.note(topic)
        return self._headroom


def _set_member(names: set[str], name: str, *, member: bool) -> None:
    (names.add if member else names.discard)(name)
