"""Which topics the adaptor has to look at again, although no new report came. Kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from distributor.model.cluster import Topic
from distributor.model.leases import MICRO, Amount
from distributor.registry.registry import Registry
from srtm.topics.adaptation import ADAPTED


class _Terms(NamedTuple):
    """The limits of a proposal. Shares are not among them: issuing or acknowledging one is no news."""

    is_adapted: bool
    version: int
    assignment_version: int
    envelope: Amount
    holders: frozenset[str]
    most: tuple[int, ...]  # micro-messages/s that brokers can process, at most the envelope's rate


class AdaptorChanges:
    """``changed`` returns each change once; the first call returns nothing."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._terms: dict[str, _Terms] = {}
        self._count: int | None = None  # changes of topics that were looked at
        self._load_changes = 0  # changes of broker loads that were looked at
        self._ample: set[str] = set()  # brokers that had room for any topic at the last look

    def changed(self) -> set[str]:
        """Topics whose terms have changed since the last call."""
        begins, changes, loads = self._count is None, self._registry.topic_changes, self._registry.headroom
        names = set(self._registry.topics if self._count is None else changes.since(self._count))
        for broker in self._bounding(loads.changes.since(self._load_changes)):
            names.update(loads.topics_on(broker))
        self._count, self._load_changes = changes.count, loads.changes.count
        found = {name for name in names if self._has_changed(name)}
        return set() if begins else found

    def _bounding(self, brokers: Sequence[str]) -> list[str]:
        """Those of ``brokers``, whose load has changed, that may bound other shares than before."""
        found = []
        for broker in brokers:
            was_ample, is_ample = broker in self._ample, self._registry.leaves_room(broker)
            (self._ample.add if is_ample else self._ample.discard)(broker)
            if not (was_ample and is_ample):
                found.append(broker)
        return found

    def _has_changed(self, name: str) -> bool:
        """Whether the terms of topic ``name`` have changed. Under a mode without proposals they never do."""
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
            most=tuple(envelope.rate if rate is None else min(envelope.rate, round(rate * MICRO)) for rate in limits),
        )
