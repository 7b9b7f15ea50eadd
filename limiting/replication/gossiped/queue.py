"""The thesis's own design: a replicated queue of accepted requests (section 4.2, listings 4.1 to 4.8). For comparison.

An element has a time of birth, in whole ms, and a time of death: ``max(birth, death before it) + 1 / r`` (equation
4.2). A subject with as many live elements as its burst is refused.

Misprints that are mended:

* Listing 4.1 removes elements that are alive: the sign is reversed.
* Listing 4.2 compares the heads of both queues only. A delta state has an old and a new version of an element, so the
  local state would count both, tell both, and grow without bound. The text says that the result has no duplicates.
* Listing 4.3 would space the two versions in a delta state too, and put off all deaths behind them. Here it spaces the
  local state, which is what the delta states then tell.
* Listing 4.5 compares an interval with ``>`` where frequent means shorter, reads one element past the end, and inserts
  at the wrong end.

Faults of the design itself are kept, and are tests here. It is no CRDT: removal is an act of one node's clock and not
part of the merge, so the order of merges matters. Two requests of one ms at two nodes are one element. A changed death
is told to everybody again, beside the old one. What dies before it has spread is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from limiting.replication.gossiped.gossip import MS, Delta, GossipNode, GossipOptions
from limiting.replication.refill import ALLOWED, Look, Refill, Subject, Verdict, refused
from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN

Element = tuple[int, int]  # time of birth and time of death, ns
Queue = list[Element]  # ascending by birth; a queue is never changed, but replaced


def alive(queue: Queue, at_ns: int) -> Queue:
    """What is not dead at ``at_ns``, from the first that is alive on (listing 4.1)."""
    for number, (_, death) in enumerate(queue):
        if death > at_ns:
            return queue[number:] if number else queue
    return []


def merge(local: Queue, other: Queue, life_ns: int) -> Queue:
    """Merge two queues by birth; of those born at once the later death counts (listings 4.2 and 4.3)."""
    latest: dict[int, int] = {}
    for birth, death in (*local, *other):
        if death > latest.get(birth, 0):
            latest[birth] = death
    return spaced(sorted(latest.items()), life_ns)


def merge_delta(delta: Queue, updates: Queue) -> Queue:
    """Merge updates into a delta state: elements born at once are kept side by side (listing 4.2, not into local
    state)."""
    return sorted([*updates, *delta])


def spaced(queue: Queue, life_ns: int) -> Queue:
    """Each death at least ``life_ns`` after the one before it (listing 4.3)."""
    result: Queue = []
    earliest = 0
    for element in queue:
        if element[1] < earliest:
            element = (element[0], earliest)
        result.append(element)
        earliest = element[1] + life_ns
    return result


class QueueNode(GossipNode[Queue]):
    """One node of the queue design."""

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refill: Refill,
        at_ns: int,
        options: GossipOptions = GossipOptions(),  # noqa: B008 - it is frozen
        seed: int = 0,
    ) -> None:
        if refill.rate_micro == 0:
            raise BadInput("rate", 0, "must be above 0: an element of the queue must die")
        super().__init__(name, peers, refill, at_ns, options, seed)
        self._life_ns = 10**15 // refill.rate_micro
        self._limit = refill.burst_micro // 1_000_000

    def look(self, subject: Subject, at_ns: int) -> list[Look]:
        left = self._limit - len(alive(self.local.get(subject, []), at_ns))
        return [Look(left * TOKEN, self.refill.rate_micro, self._limit * TOKEN)]

    def _take(self, subject: Subject, at_ns: int) -> Verdict:
        queue = alive(self.local.get(subject, []), at_ns)
        if len(queue) >= self._limit:
            self.local[subject] = queue
            return refused(queue[len(queue) - self._limit][1] - at_ns, 1, possible=True)
        before = queue[-1][1] if queue else at_ns
        element = at_ns // MS * MS, before + self._life_ns
        self.local[subject] = [*queue, element]
        for delta in self.deltas.values():
            delta[subject] = [*delta.get(subject, ()), element]
        return ALLOWED

    def _frequent(self, peer: int, subject: Subject, at_ns: int) -> bool:
        queued = self.deltas[peer][subject]
        if len(queued) < self._window:
            return False
        return at_ns - queued[-self._window][0] < self.options.threshold_ns * self._window

    def _merge(self, subject: Subject, state: Queue) -> Queue | None:
        local = self.local.get(subject)
        merged = merge(local or [], state, self._life_ns)
        known = set(local or ())
        self.local[subject] = merged
        return [element for element in merged if element not in known] or None

    def _queue(self, peer: int, subject: Subject, news: Queue, received: Delta[Queue] | None) -> int:
        delta = self.deltas[peer]
        before = delta.get(subject, [])
        merged = merge_delta(before, news)
        if received is not None:
            theirs = set(received.users[subject])
            merged = [element for element in merged if element not in theirs]
        delta[subject] = merged
        return len(merged) - len(before)

    def _refill(self, states: dict[Subject, Queue], subject: Subject, at_ns: int) -> None:
        left = alive(states.get(subject, []), at_ns)
        if left:
            states[subject] = left
        else:
            states.pop(subject, None)

    def _size(self, users: dict[Subject, Queue]) -> int:
        return sum(map(len, users.values()))
