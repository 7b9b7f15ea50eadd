"""Shares that follow the traffic: brokers get some where messages come, and give up those that nobody needs.

How large they are is the split loop's; here is who has one at all, and what misplaced publishers take along.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from distributor.registry.registry import Registry
from distributor.sync.misplaced_publishers import is_significant_change, needs_tokens
from distributor.sync.sessions import Sessions
from srtm.control import HistoryReport, TopicReport

_LATELY_BINS = 5  # of 100 ms, at the end of a history: who sent before may have left


class TrafficShares:
    """Tells the registry of shares that reports ask for."""

    def __init__(self, registry: Registry, sessions: Sessions) -> None:
        self._registry, self._sessions = registry, sessions

    async def account_for_misplaced(self, name: str, have_version: int, reports: Mapping[str, TopicReport]) -> None:
        """Let shares follow publishers that stay on a broker that they are not assigned to. Once they have left, and no
        message waits, shares are as assigned again."""
        session, registry = self._sessions.begun(name), self._registry
        for topic_name, report in reports.items():
            topic = registry.managed_topic(topic_name)
            if topic is None or not session.misplaced.is_affected(name, topic):
                continue
            if have_version < topic.assignment_version or registry.draining & topic.leases.target.keys():
                continue
            if any(publisher.topic == topic.name for publisher in session.unassigned):
                continue  # some do not know yet where to move
            rates = session.misplaced.rates(name, topic, report.undeclared, trio.current_time())
            if rates is None or not is_significant_change(topic, name, rates):
                continue
            if needs_tokens(topic, rates):
                await registry.set_misplaced(topic.name, name, rates)
            elif not report.backlog:
                await registry.set_misplaced(topic.name, name, {})

    async def follow_history(self, name: str, report: HistoryReport) -> None:
        """A broker without a share gets a small one as soon as messages come there."""
        for history in report.topics:
            if any(history.arrivals[-_LATELY_BINS:]) or (history.change and history.change.arrivals > 0):
                await self._give_small_share(history.topic, name)

    async def share_where_messages_come(
        self, name: str, before: Mapping[str, TopicReport], reports: Mapping[str, TopicReport]
    ) -> None:
        """A broker without a share of a topic gets a small one where messages wait, or were refused since ``before``:
        under ``on_excess = "reject"`` none ever waits."""
        for report in reports.values():
            last = before.get(report.topic)
            was_refused = report.rejected > (last.rejected if last is not None else 0)
            if report.backlog or was_refused:
                await self._give_small_share(report.topic, name)

    async def _give_small_share(self, topic_name: str, broker: str) -> None:
        """Unless it has one, or the topic is limited by nobody."""
        topic = self._registry.managed_topic(topic_name)
        if topic is not None and broker not in topic.leases.target:
            await self._registry.add_small_share(topic_name, broker)

    async def take_unneeded(self, name: str, reports: Mapping[str, TopicReport]) -> None:
        """``name`` drains and takes no messages: where none wait for tokens, none ever will."""
        for topic in self._registry.managed():
            report = reports.get(topic.name)
            if name in topic.leases.target and not (report and report.backlog):
                await self._registry.take_back_share(topic.name, name)
