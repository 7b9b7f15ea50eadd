"""Which topics have become others for whoever proposes shares of them. Kept in memory alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from distributor.model.cluster import Topic
from distributor.model.leases import MICRO, Amount
from distributor.registry.registry import Registry
from srtm.topics.adaptation import ADAPTED


class _Terms(NamedTuple):
    """What a proposal must fit. Not the shares themselves: that they were issued or acknowledged is no news. ``most``:
    what brokers can process, micro-messages/s, as far as the envelope goes."""

    is_adapted: bool
    version: int
    assignment_version: int
    envelope: Amount
    holders: frozenset[str]
    most: tuple[int, ...]


class Shown:
    """``changed`` gives each change once; the first time nothing."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._terms: dict[str, _Terms] = {}
        self._count: int | None = None  # changes of topics that were looked at
        self._load_count = 0  # changes of what brokers carry
        self._ample: set[str] = set()  # brokers that left room for any topic when they were looked at last
        self._fitted: frozenset[str] = frozenset()

    def changed(self) -> set[str]:
        """Topics with other terms than the last time, also because of what else their brokers carry, and those whose
        fitting has ended since: what was proposed meanwhile was refused."""
        begins, changes, load = self._count is None, self._registry.topic_changes, self._registry.headroom
        names = set(self._registry.topics if self._count is None else changes.since(self._count))
        for broker in self._bounding(load.changes.since(self._load_count)):
            names.update(load.topics_on(broker))
        self._count, self._load_count = changes.count, load.changes.count
        found = {name for name in names if self._is_other(name)}
        fitted = frozenset(self._registry.being_fitted)
        found |= {name for name in self._fitted - fitted if self._registry.managed_topic(name) is not None}
        self._fitted = fitted
        return set() if begins else found

    def _bounding(self, brokers: Sequence[str]) -> list[str]:
        """Those of ``brokers``, which carry other loads than before, that may bound other shares than before."""
        found = []
        for broker in brokers:
            was_ample, is_ample = broker in self._ample, self._registry.leaves_room(broker)
            (self._ample.add if is_ample else self._ample.discard)(broker)
            if not (was_ample and is_ample):
                found.append(broker)
        return found

    def _is_other(self, name: str) -> bool:
        """Under a mode in which nobody proposes anything, no topic is another than before."""
        before, topic = self._terms.get(name), self._registry.managed_topic(name)
        if topic is None:
            self._terms.pop(name, None)
            return False
        self._terms[name] = now = self._terms_of(topic)
        return now != before and (now.is_adapted or (before is not None and before.is_adapted))

    def _terms_of(self, topic: Topic) -> _Terms:
        is_adapted, envelope = topic.spec.mode in ADAPTED, topic.leases.envelope
        limits = [self._registry.max_rate(topic, name) for name in sorted(topic.leases.target) if is_adapted]
        return _Terms(
            is_adapted=is_adapted,
            version=topic.version,
            assignment_version=topic.assignment_version,
            envelope=envelope,
            holders=frozenset(topic.leases.target),
            most=tuple(envelope.rate if one is None else min(envelope.rate, round(one * MICRO)) for one in limits),
        )
