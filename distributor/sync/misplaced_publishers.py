"""Who publishes where without belonging there, and how much. Pure: what brokers say in, msg/s out; time is a parameter.

A broker names each stranger once per assignment, and counts the messages of all of them together. Aware publishers
have moved a moment later; those that go on being counted do not move (plain NSQ clients). So: as much as is counted,
but no more than what the topic says of those that were named. Who is not named in the topic is not accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from distributor.model.cluster import Topic

WINDOW_S = 2.0  # counted for that long
QUIET_S = 1.0  # without a message: whoever was on the way has gone
_PATIENCE_S = 5.0  # then those who still publish are not on the way any more
_WORTH = 0.01  # of the topic's load: less is not worth a change of shares
_NEWS = 0.25  # of what is accounted: a smaller change is noise


@dataclass(frozen=True, slots=True)
class _Count:
    """Of the messages of strangers on one broker."""

    version: int  # of the assignment
    began_s: float  # when the first was taken under it
    since_s: float
    count: int


class Whereabouts:
    """What was seen of strangers. Observed, not stored: brokers tell again after a change, and whoever leads next."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], tuple[int, set[str]]] = {}  # {(broker, topic): (assignment version, who)}
        self._counts: dict[tuple[str, str], _Count] = {}

    def forget(self, broker: str) -> None:
        for book in (self._named, self._counts):
            for key in [key for key in book if key[0] == broker]:
                book.pop(key)

    def name(self, broker: str, topic: Topic, publisher_id: str) -> None:
        """``publisher_id`` publishes on ``broker`` and does not belong there."""
        if publisher_id not in topic.spec.publishers.positions:
            return
        version, who = self._named.get((broker, topic.name), (0, set()))
        if version != topic.assignment_version:
            who = set()
        who.add(publisher_id)
        self._named[broker, topic.name] = (topic.assignment_version, who)

    def concerning(self, broker: str, topics: Iterable[Topic]) -> list[Topic]:
        """Those of ``topics`` of which strangers were named on ``broker``, or count there."""
        named = {topic for name, topic in self._named if name == broker}
        return [topic for topic in topics if broker in topic.misplaced or topic.name in named]

    def count(self, broker: str, topic: Topic, undeclared: int, now_s: float) -> dict[str, float] | None:
        """``undeclared``: messages of strangers since the broker's start. Gives {where they belong: msg/s} over the
        last WINDOW_S, once there is one under the latest assignment; else None. While publishers are on the way: once
        there was no message for QUIET_S, or after a while."""
        key = (broker, topic.name)
        last = self._counts.get(key)
        if last is None or last.version != topic.assignment_version or undeclared < last.count:
            self._counts[key] = _Count(topic.assignment_version, now_s, now_s, undeclared)
            return None
        moving = "" in topic.misplaced.get(broker, {}) and now_s - last.began_s < _PATIENCE_S
        if moving and undeclared > last.count:
            self._counts[key] = replace(last, since_s=now_s, count=undeclared)
            return None
        if now_s - last.since_s < (QUIET_S if moving else WINDOW_S):
            return None
        self._counts[key] = replace(last, since_s=now_s, count=undeclared)
        return self._homes(key, topic, (undeclared - last.count) / (now_s - last.since_s))

    def _homes(self, key: tuple[str, str], topic: Topic, rate: float) -> dict[str, float]:
        declared: dict[str, float] = {}
        version, who = self._named.get(key, (0, set()))
        if rate > 0 and version == topic.assignment_version:
            columns = topic.spec.publishers
            for publisher_id in who:
                home = topic.placement.broker_of(publisher_id)
                if home is not None and home != key[0]:
                    declared[home] = declared.get(home, 0.0) + float(columns.rates[columns.positions[publisher_id]])
        part = min(1.0, rate / (sum(declared.values()) or 1.0))
        return {home: one * part for home, one in declared.items()}


def is_news(topic: Topic, broker: str, homes: Mapping[str, float]) -> bool:
    """Whether ``homes`` differ from what is accounted by more than noise."""
    before, now = sum(topic.misplaced.get(broker, {}).values()), sum(homes.values())
    if not is_worth(topic, homes):
        return before > 0
    return "" in topic.misplaced.get(broker, {}) or abs(now - before) > max(
        _NEWS * before, _WORTH * topic.placement.publishers.load
    )


def is_worth(topic: Topic, homes: Mapping[str, float]) -> bool:
    """Whether a broker gets tokens for them."""
    return sum(homes.values()) > _WORTH * topic.placement.publishers.load
