"""Gossip of delta states: each node keeps one for each neighbour, and sends it now and then (sections 3.1 and 4.2).

Every ``interval_ns`` a node sends one neighbour its delta state and empties it. Whose turn it is: ``random``, or
``linf``, the least informed neighbour first (section 4.2.4). With ``frequency_analysis`` (section 4.2.3) a node also
sends a subject's part at once, when its latest requests came close together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Generic, TypeVar

from limiting.replication.refill import Look, Refill, Subject, Verdict
from srtm.errors import BadInput

MS = 1_000_000  # ns
State = TypeVar("State")


class Gossip(Enum):
    """Which neighbour is told next."""

    RANDOM = "random"
    LINF = "linf"


@dataclass(frozen=True, kw_only=True)
class GossipOptions:
    """Defaults as in tables 4.1 and 4.2 of the thesis.

    ``window``: requests that the frequency is of, None: the burst over the number of nodes; ``threshold_ns``: they are
    frequent if they came at shorter intervals, on average.
    """

    gossip: Gossip = Gossip.RANDOM
    frequency_analysis: bool = False
    interval_ns: int = 300 * MS
    window: int | None = None
    threshold_ns: int = 2_400 * MS


@dataclass(frozen=True, slots=True)
class Delta(Generic[State]):
    """The part of the state that a neighbour may not know."""

    origin: int
    users: dict[Subject, State]


class GossipNode(ABC, Generic[State]):
    """One node. ``seed`` and ``name`` make its choices, and when it first gossips."""

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refill: Refill,
        at_ns: int,
        options: GossipOptions = GossipOptions(),
        seed: int = 0,
    ) -> None:
        self.name = name
        self.refill = refill
        self.options = options
        self.local: dict[Subject, State] = {}
        self.deltas: dict[int, dict[Subject, State]] = {peer: {} for peer in peers}
        self._priorities = dict.fromkeys(self.deltas, 0)
        self._chance = Random(f"{seed} {name}")
        self._due_ns = at_ns + self._chance.randrange(options.interval_ns)
        self._out: list[tuple[int, Delta[State]]] = []
        nodes = len(self.deltas) + 1
        self._window = options.window or max(1, refill.burst_micro // 1_000_000 // nodes)

    @property
    def due_ns(self) -> int:
        """When to gossip next."""
        return self._due_ns

    @property
    def told(self) -> bool:
        """Nothing is queued for any neighbour."""
        return not any(self.deltas.values())

    def take(self, subject: Subject, cost: int, at_ns: int) -> Verdict:
        """Take one token of ``subject``. Raises BadInput for another cost."""
        if cost != 1:
            raise BadInput("cost", cost, "must be 1: the designs of the thesis know no other")
        verdict = self._take(subject, at_ns)
        if verdict.allowed:
            for peer in self.deltas:
                self._priorities[peer] += 1
                if self.options.frequency_analysis and self._frequent(peer, subject, at_ns):
                    self._send(peer, subject)
        return verdict

    def receive(self, delta: Delta[State], at_ns: int) -> None:
        """Merge a neighbour's delta state, and queue what was new for the others."""
        updates = {}
        for subject, state in delta.users.items():
            news = self._merge(subject, state)
            self._refill(self.local, subject, at_ns)
            if news is not None:
                updates[subject] = news
        for peer in self.deltas:
            for subject, news in updates.items():
                self._priorities[peer] += self._queue(peer, subject, news, delta if peer == delta.origin else None)
            for subject in delta.users:
                self._refill(self.deltas[peer], subject, at_ns)
        if delta.origin in self.deltas:
            self._priorities[delta.origin] = self._size(self.deltas[delta.origin])

    def tick(self, at_ns: int) -> None:
        """Gossip if it is time to."""
        while at_ns >= self._due_ns:
            self._due_ns += self.options.interval_ns
            peer = self._next_peer()
            self._priorities[peer] = 0
            if self.deltas[peer]:
                self._out.append((peer, Delta(self.name, self.deltas[peer])))
                self.deltas[peer] = {}
                self._sent(peer, None)

    def outbox(self) -> list[tuple[int, Delta[State]]]:
        """(neighbour, delta state) to send. They are handed over once."""
        out, self._out = self._out, []
        return out

    def _next_peer(self) -> int:
        peers = list(self.deltas)
        if self.options.gossip is Gossip.LINF:
            most = max(self._priorities.values())
            peers = [peer for peer in peers if self._priorities[peer] == most]
        return self._chance.choice(peers)

    def _send(self, peer: int, subject: Subject) -> None:
        """Send one subject's part at once (listings 4.5 and 4.8)."""
        part = {subject: self.deltas[peer].pop(subject)}
        self._priorities[peer] = max(0, self._priorities[peer] - self._size(part))
        self._out.append((peer, Delta(self.name, part)))
        self._sent(peer, subject)

    @abstractmethod
    def look(self, subject: Subject, at_ns: int) -> list[Look]:
        """What this node knows to be left, of its one policy. It changes nothing."""

    @abstractmethod
    def _take(self, subject: Subject, at_ns: int) -> Verdict:
        """Decide, and put what was taken into the local state and into every delta state."""

    @abstractmethod
    def _frequent(self, peer: int, subject: Subject, at_ns: int) -> bool:
        """The latest requests that the neighbour was not told of came close together."""

    @abstractmethod
    def _merge(self, subject: Subject, state: State) -> State | None:
        """Merge into the local state, and return what is news for the neighbours. None: nothing is."""

    @abstractmethod
    def _queue(self, peer: int, subject: Subject, news: State, received: Delta[State] | None) -> int:
        """Merge ``news`` into a delta state; ``received`` where the neighbour sent it itself. Return what was added."""

    @abstractmethod
    def _size(self, users: dict[Subject, State]) -> int:
        """How many updates there are, for ``linf``."""

    def _refill(self, states: dict[Subject, State], subject: Subject, at_ns: int) -> None:
        """Let go of what no longer counts, in the local state or a delta state."""

    def _sent(self, peer: int, subject: Subject | None) -> None:
        """A delta state, or a subject's part of it, was sent."""
