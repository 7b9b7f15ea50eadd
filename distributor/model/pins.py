"""Publishers that did not move when they were told, and where they are. Pure; observed, not stored.

Placement takes them as fixed. One that a broker sees anew elsewhere has reconnected: it is asked again.
"""

from __future__ import annotations

from collections.abc import Collection

from distributor.model.cluster import Topic


class Pins:
    """{topic: {publisher: broker}}, as brokers said."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, str]] = {}

    def pin(self, topic: str, publisher_id: str, broker: str) -> None:
        """``publisher_id`` stays at ``broker``."""
        self._of.setdefault(topic, {})[publisher_id] = broker

    def ask_again(self, topic: str, publisher_id: str, broker: str) -> None:
        """``publisher_id`` was seen at ``broker``: where that is another one, it may move."""
        if self._of.get(topic, {}).get(publisher_id, broker) != broker:
            del self._of[topic][publisher_id]

    def of(self, topic: str, without: Collection[str] = ()) -> dict[str, str]:
        """{publisher: broker}, but for those on the brokers in ``without``."""
        return {one: broker for one, broker in self._of.get(topic, {}).items() if broker not in without}

    def at(self, topic: str, broker: str) -> list[str]:
        """Ids of those who stay at ``broker``."""
        return [one for one, at in self._of.get(topic, {}).items() if at == broker]

    def elsewhere(self, topic: Topic) -> dict[str, str]:
        """{publisher: broker}, of those whose place in ``topic`` is another broker."""
        placement = topic.placement
        return {
            one: broker for one, broker in self.of(topic.name).items() if placement.broker_of(one) not in (None, broker)
        }

    def forget_topic(self, topic: str) -> None:
        """It was removed."""
        self._of.pop(topic, None)

    def forget_broker(self, broker: str) -> None:
        """It has ended: whoever was there connects anew."""
        for topic in self._of:
            self._of[topic] = self.of(topic, without={broker})
