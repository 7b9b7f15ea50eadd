"""The thesis's own design: a replicated queue of accepted requests (section 4.2, listings 4.1 to 4.8). For comparison.

An element has a time of birth, in whole ms, and a time of death: ``max(birth, death before it) + 1 / r`` (equation
4.2). A subject with as many live elements as its burst is refused.

Misprints that are mended: listing 4.1 removes elements that are alive (the sign is reversed); listing 4.5 compares an
interval with ``>`` where frequent means shorter, reads one element past the end, and inserts at the wrong end.

Faults of the design itself are kept, and are tests here. It is no CRDT: removal is an act of one node's clock and not
part of the merge, so the order of merges matters. Two requests of one ms at two nodes are one element. A delta state
keeps an old and a new version of an element, and both are counted. What dies before it has spread is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from limiting.replication.gossiped.gossip import MS, Delta, GossipNode, GossipOptions
from limiting.replication.refill import ALLOWED, Refill, Subject, Verdict, refused
from srtm.errors import BadInput

Element = tuple[int, int]  # time of birth and time of death, ns
Queue = list[Element]  # ascending by birth; a queue is never changed, but replaced

_BIRTH = itemgetter(0)


def alive(queue: Queue, at_ns: int) -> Queue:
    """What is not dead at ``at_ns``, from the first that is alive on (listing 4.1)."""
    for number, (_, death) in enumerate(queue):
        if death > at_ns:
            return queue[number:] if number else queue
    return []


def merge(local: Queue, other: Queue, life_ns: int) -> Queue:
    """Merge two queues by birth; of elements born at once the later death counts (listing 4.2, into local state)."""
    result: Queue = []
    mine = theirs = 0
    while mine < len(local) and theirs < len(other):
        one, two = local[mine], other[theirs]
        if one[0] == two[0]:
            result.append(one if one[1] >= two[1] else two)
            mine += 1
            theirs += 1
        elif one[0] < two[0]:
            result.append(one)
            mine += 1
        else:
            result.append(two)
            theirs += 1
    return spaced([*result, *local[mine:], *other[theirs:]], life_ns)


def merge_delta(delta: Queue, updates: Queue, life_ns: int) -> Queue:
    """Merge updates into a delta state: elements born at once are kept side by side, the update first (listing 4.2, not
    into local state)."""
    return spaced(sorted([*updates, *delta], key=_BIRTH), life_ns)


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
        merged = spaced(state, self._life_ns) if local is None else merge(local, state, self._life_ns)
        known = set(local or ())
        self.local[subject] = merged
        return [element for element in merged if element not in known] or None

    def _queue(self, peer: int, subject: Subject, news: Queue, received: Delta[Queue] | None) -> int:
        delta = self.deltas[peer]
        before = delta.get(subject, [])
        merged = merge_delta(before, news, self._life_ns)
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
