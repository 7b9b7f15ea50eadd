"""Which topics have become others for whoever proposes shares of them. Kept in memory alone."""

from __future__ import annotations

from typing import NamedTuple

from distributor.leases import Amount
from distributor.registry import Registry
from distributor.state import Topic
from srtm.adaptation import ADAPTED


class _Terms(NamedTuple):
    """What a proposal must fit. Not the shares themselves: that they were issued or acknowledged is no news."""

    is_adapted: bool
    version: int
    assignment_version: int
    envelope: Amount
    holders: frozenset[str]


class Shown:
    """``changed`` gives each change once; the first time nothing."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._terms: dict[str, _Terms] = {}
        self._count: int | None = None  # changes of topics that were looked at
        self._fitted: frozenset[str] = frozenset()

    def is_managed(self, name: str) -> bool:
        topic = self._registry.topics.get(name)
        return topic is not None and not topic.removed

    def changed(self) -> set[str]:
        """Topics with other terms than the last time, and those whose fitting has ended since: what was proposed
        meanwhile was refused."""
        begins, changes = self._count is None, self._registry.topic_changes
        names = list(self._registry.topics) if self._count is None else changes.since(self._count)
        self._count = changes.count
        found = {name for name in names if self._is_other(name)}
        fitted = frozenset(self._registry.being_fitted)
        found |= {name for name in self._fitted - fitted if self.is_managed(name)}
        self._fitted = fitted
        return set() if begins else found

    def _is_other(self, name: str) -> bool:
        """Under a mode in which nobody proposes anything, no topic is another than before."""
        before, topic = self._terms.get(name), self._registry.topics.get(name)
        if topic is None or topic.removed:
            self._terms.pop(name, None)
            return False
        self._terms[name] = now = _terms(topic)
        return now != before and (now.is_adapted or (before is not None and before.is_adapted))


def _terms(topic: Topic) -> _Terms:
    return _Terms(
        is_adapted=topic.spec.mode in ADAPTED,
        version=topic.version,
        assignment_version=topic.assignment_version,
        envelope=topic.leases.envelope,
        holders=frozenset(topic.leases.target),
    )
