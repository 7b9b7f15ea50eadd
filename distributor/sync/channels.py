"""Which channels a topic has: the same ones on all brokers. Brokers report theirs; each gets those of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from distributor.model.change_log import Changes
from distributor.model.cluster import Topic
from distributor.registry.registry import Registry
from distributor.sync.report_checks import BrokerReports
from distributor.sync.sessions import ChannelBasis, Sessions
from srtm.control import TopicReport
from srtm.protocol import is_ephemeral


class Channels:
    """Works out the channels of those topics alone that a report may have changed.

    ``changes``: managed topics of which a report named other channels than before.
    """

    def __init__(self, registry: Registry, sessions: Sessions) -> None:
        self._registry, self._sessions = registry, sessions
        self.changes = Changes()

    def note(self, topics: Iterable[str]) -> None:
        """A report names other channels of ``topics`` than the one before."""
        self.changes.note(topic for topic in topics if self._registry.managed_topic(topic) is not None)

    def basis(self) -> ChannelBasis:
        """As it is now."""
        living = frozenset(name for name, broker in self._registry.brokers.items() if not broker.dead)
        return ChannelBasis(
            topic_changes=self._registry.topic_changes.count,
            channel_changes=self.changes.count,
            reporting=living.intersection(self._sessions.reporting()),
            living=living,
        )

    def changed(self, name: str, reports: BrokerReports, basis: ChannelBasis) -> dict[str, tuple[str, ...]]:
        """{topic: its channels}, for topics whose channels may have changed since the last request of ``name``."""
        last, topics = self._sessions.of(name).channel_basis, self._registry.topics
        if last is None or (last.reporting, last.living) != (basis.reporting, basis.living):
            names = [*reports.changed, *reports.topics]
        else:
            names = [*reports.rechanneled]
            # Changes by other brokers: of two requests at one time, neither sees the reports of the other.
            names += self.changes.since(last.channel_changes)
            names += [
                topic for topic in self._registry.topic_changes.since(last.topic_changes) if topic in reports.topics
            ]
        reporting, found = basis.reporting | {name}, {}
        for topic in dict.fromkeys(names):
            known = self._sessions.known(topic)
            known.pop(name, None)
            if topic in reports.topics:
                known[name] = reports.topics[topic]
            if known and topic in topics:
                found[topic] = self._channels(topics[topic], known, reporting)
        return found

    def _channels(self, topic: Topic, reports: Mapping[str, TopicReport], reporting: Set[str]) -> tuple[str, ...]:
        """The channels that ``topic`` has on any broker. Stored channels count until every living broker with a part in
        the topic has reported. ``reports``: of it; ``reporting``: brokers that have sent any."""
        reported = {channel for report in reports.values() for channel in report.channels if not is_ephemeral(channel)}
        brokers = self._registry.brokers
        with_part = {
            name
            for name in {*topic.placement.brokers, *topic.leases.target}
            if name in brokers and not brokers[name].dead
        }
        return tuple(sorted(reported if with_part <= reporting else reported.union(topic.channels)))
