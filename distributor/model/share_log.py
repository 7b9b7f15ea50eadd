"""The latest changes of every topic's shares, for people: what was changed, when and why. Not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from distributor.model.cluster import Topic
from distributor.model.leases import Amount
from srtm.control import ShareProposal

_CHANGES_KEPT = 20  # a topic


@dataclass(frozen=True, kw_only=True)
class ShareChange:
    """One change of a topic's shares."""

    wall_ns: int
    mode: str
    reason: str
    shares: Mapping[str, Amount]


class ShareLog:
    """``changes``: {topic: latest changes, newest last}; ``counts``: {topic: proposals taken since the start}."""

    def __init__(self) -> None:
        self.changes: dict[str, tuple[ShareChange, ...]] = {}
        self.counts: Counter[str] = Counter()

    def note_proposal(self, proposal: ShareProposal, target: Mapping[str, Amount], wall_ns: int) -> None:
        """A proposal of the adaptor was taken."""
        self.counts[proposal.topic] += 1
        change = ShareChange(wall_ns=wall_ns, mode=proposal.mode, reason=proposal.reason, shares=target)
        self._add(proposal.topic, change)

    def note_decision(self, old: Topic | None, new: Topic, decision: str, wall_ns: int) -> None:
        """A decision may have changed the shares, or who decides on them; its first line is the reason."""
        if new.removed:
            self.changes.pop(new.name, None)
            self.counts.pop(new.name, None)
        elif old is None or (old.spec.mode, old.leases.target) != (new.spec.mode, new.leases.target):
            reason, _, _ = decision.partition("\n")
            shares = new.leases.target
            self._add(new.name, ShareChange(wall_ns=wall_ns, mode=new.spec.mode, reason=reason, shares=shares))

    def _add(self, topic: str, change: ShareChange) -> None:
        self.changes[topic] = (*self.changes.get(topic, ()), change)[-_CHANGES_KEPT:]
