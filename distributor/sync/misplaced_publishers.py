"""Which publishers send to a broker that they are not assigned to, and at what rate. Pure: the caller passes the time.

A broker names each unassigned publisher once per assignment, and counts the messages of all of them together. Clients
that know about assignments move within moments; plain NSQ clients stay, and go on being counted. So the rate is what
the broker counts, limited to what the topic declares for the publishers that were named. Publishers that the topic does
not declare are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from distributor.model.cluster import Topic

_WINDOW_S = 1.0  # over which messages are counted; without one for so long, publishers in transit have left
_TRANSIT_LIMIT_S = 5.0  # publishers that still send after this time do not move
_MIN_LOAD_FRACTION = 0.01  # of the topic's load: less is not worth a change of shares
_MIN_CHANGE_FRACTION = 0.25  # of the rate accounted for: a smaller change is noise


@dataclass(frozen=True, slots=True)
class _Count:
    """Messages of unassigned publishers of one topic."""

    version: int  # of the assignment
    began_s: float  # when the first count under this assignment was taken
    since_s: float
    count: int


class MisplacedPublishers:
    """Observations of one broker, by topic. Not stored: brokers report again after a change of leader."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, set[str]]] = {}  # {topic: (assignment version, publisher ids)}
        self._counts: dict[str, _Count] = {}

    def add(self, topic: Topic, publisher_id: str) -> None:
        """Note that ``publisher_id`` sends to this broker without being assigned to it."""
        if publisher_id not in topic.spec.publishers.positions:
            return
        version, ids = self._named.get(topic.name, (0, set()))
        if version != topic.assignment_version:
            ids = set()
        ids.add(publisher_id)
        self._named[topic.name] = (topic.assignment_version, ids)

    def forget(self, topic: str) -> None:
        """It was removed."""
        self._named.pop(topic, None)
        self._counts.pop(topic, None)

    def ids(self, topic: Topic) -> list[str]:
        """The publishers of ``topic`` that were named under its present assignment, sorted. Some may have left."""
        version, ids = self._named.get(topic.name, (0, set()))
        return sorted(ids) if version == topic.assignment_version else []

    def is_affected(self, broker: str, topic: Topic) -> bool:
        """Whether ``topic`` has misplaced publishers here, named by the broker or accounted for already."""
        return broker in topic.misplaced or topic.name in self._named

    def rates(self, broker: str, topic: Topic, undeclared: int, now_s: float) -> dict[str, float] | None:
        """{assigned broker: msg/s that arrive here}, averaged over the last window; None while the window is open.

        ``undeclared`` counts messages of unassigned publishers since the broker's start. While publishers are in
        transit the window ends after one without a message, or when the transit limit is over.
        """
        last = self._counts.get(topic.name)
        if last is None or last.version != topic.assignment_version or undeclared < last.count:
            self._counts[topic.name] = _Count(topic.assignment_version, now_s, now_s, undeclared)
            return None
        in_transit = "" in topic.misplaced.get(broker, {}) and now_s - last.began_s < _TRANSIT_LIMIT_S
        if in_transit and undeclared > last.count:
            self._counts[topic.name] = replace(last, since_s=now_s, count=undeclared)
            return None
        if now_s - last.since_s < _WINDOW_S:
            return None
        self._counts[topic.name] = replace(last, since_s=now_s, count=undeclared)
        return self._by_assigned_broker(broker, topic, (undeclared - last.count) / (now_s - last.since_s))

    def _by_assigned_broker(self, broker: str, topic: Topic, rate: float) -> dict[str, float]:
        declared: dict[str, float] = {}
        version, ids = self._named.get(topic.name, (0, set()))
        if rate > 0 and version == topic.assignment_version:
            columns = topic.spec.publishers
            for publisher_id in ids:
                home = topic.placement.broker_of(publisher_id)
                if home is not None and home != broker:
                    declared[home] = declared.get(home, 0.0) + float(columns.rates[columns.positions[publisher_id]])
        fraction = min(1.0, rate / (sum(declared.values()) or 1.0))
        return {home: declared_rate * fraction for home, declared_rate in declared.items()}


def is_significant_change(topic: Topic, broker: str, rates: Mapping[str, float]) -> bool:
    """Whether ``rates`` differ from what is accounted for on ``broker`` by more than noise."""
    before, now = sum(topic.misplaced.get(broker, {}).values()), sum(rates.values())
    if not needs_tokens(topic, rates):
        return before > 0
    smallest = max(_MIN_CHANGE_FRACTION * before, _MIN_LOAD_FRACTION * topic.placement.publishers.load)
    return "" in topic.misplaced.get(broker, {}) or abs(now - before) > smallest


def needs_tokens(topic: Topic, rates: Mapping[str, float]) -> bool:
    """Whether a broker gets tokens for misplaced publishers of these rates."""
    return sum(rates.values()) > _MIN_LOAD_FRACTION * topic.placement.publishers.load
