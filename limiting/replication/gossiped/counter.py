"""The thesis's baseline: a bucket of replicated counters (section 3.1, listings 3.1 to 3.4). For comparison.

A bucket has the tokens taken at each node, the limit (all tokens ever allowed) and the instant it was refilled. Counts
merge by their maximum for each node: a CRDT.

Misprints that are mended:

* Listing 3.1 adds up to the capacity whatever is left, so after a rest a burst of nine times the capacity passes. Here
  ``limit = min(limit + r dt, used + capacity)``.
* A new bucket has no instant of refill there; here it is the instant of its first request.
* Listing 3.3 compares whole buckets: then a limit that grew is an update, and nodes gossip for ever. Figure 5.6 shows
  that theirs do not. Here only counts make an update.

Frequency analysis is ours for the counter: the thesis has it for the queue alone. A node keeps the instants of its last
requests for each neighbour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from limiting.replication.gossiped.gossip import Delta, GossipNode, GossipOptions
from limiting.replication.refill import ALLOWED, Look, Refill, Subject, Verdict, refused
from srtm.token_bucket.bucket import TOKEN


@dataclass(frozen=True, slots=True)
class CounterBucket:
    """``counts``: tokens taken at each node; ``limit``: units allowed until ``refilled_ns``. It is never changed."""

    counts: dict[int, int]
    used: int  # tokens of all nodes
    limit: int
    refilled_ns: int

    def refilled(self, rate: int, capacity: int, at_ns: int) -> CounterBucket:
        """``rate``: units/ns; ``capacity``: units."""
        if at_ns <= self.refilled_ns:
            return self
        limit = min(self.limit + rate * (at_ns - self.refilled_ns), self.used * TOKEN + capacity)
        return CounterBucket(self.counts, self.used, limit, at_ns)

    def consumed(self, node: int) -> CounterBucket:
        counts = {**self.counts, node: self.counts.get(node, 0) + 1}
        return CounterBucket(counts, self.used + 1, self.limit, self.refilled_ns)

    def merged(self, other: CounterBucket) -> CounterBucket:
        """The larger count of each node; the larger limit, and its instant."""
        counts = dict(self.counts)
        for node, count in other.counts.items():
            if count > counts.get(node, 0):
                counts[node] = count
        newer = other if other.limit > self.limit else self
        return CounterBucket(counts, sum(counts.values()), newer.limit, newer.refilled_ns)


class CounterNode(GossipNode[CounterBucket]):
    """One node of the counter design."""

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refill: Refill,
        at_ns: int,
        options: GossipOptions = GossipOptions(),  # noqa: B008 - it is frozen
        seed: int = 0,
    ) -> None:
        super().__init__(name, peers, refill, at_ns, options, seed)
        self._latest: dict[int, dict[Subject, deque[int]]] = {peer: {} for peer in self.deltas}

    def look(self, subject: Subject, at_ns: int) -> list[Look]:
        rate, capacity = self.refill.rate_micro, self.refill.units
        bucket = self.local.get(subject)
        if bucket is None:
            return [Look(capacity, rate, capacity)]
        return [Look(bucket.refilled(rate, capacity, at_ns).limit - bucket.used * TOKEN, rate, capacity)]

    def _take(self, subject: Subject, at_ns: int) -> Verdict:
        bucket = self.local.get(subject)
        if bucket is None:
            bucket = CounterBucket({}, 0, self.refill.units, at_ns)
        else:
            bucket = bucket.refilled(self.refill.rate_micro, self.refill.units, at_ns)
        missing = (bucket.used + 1) * TOKEN - bucket.limit
        if missing > 0:
            self.local[subject] = bucket
            return refused(missing, self.refill.rate_micro, possible=True)
        bucket = self.local[subject] = bucket.consumed(self.name)
        for delta in self.deltas.values():
            delta[subject] = bucket  # an older bucket of this node is part of it
        return ALLOWED

    def _frequent(self, peer: int, subject: Subject, at_ns: int) -> bool:
        latest = self._latest[peer].setdefault(subject, deque(maxlen=self._window))
        latest.append(at_ns)
        return len(latest) == self._window and at_ns - latest[0] < self.options.threshold_ns * self._window

    def _merge(self, subject: Subject, state: CounterBucket) -> CounterBucket | None:
        bucket = self.local.get(subject)
        merged = state if bucket is None else bucket.merged(state)
        self.local[subject] = merged
        return merged if bucket is None or merged.counts != bucket.counts else None

    def _queue(self, peer: int, subject: Subject, news: CounterBucket, received: Delta[CounterBucket] | None) -> int:
        if received is not None:
            return 0
        self.deltas[peer][subject] = news
        return 1

    def _size(self, users: dict[Subject, CounterBucket]) -> int:
        return len(users)

    def _sent(self, peer: int, subject: Subject | None) -> None:
        if subject is None:
            self._latest[peer].clear()
        else:
            self._latest[peer].pop(subject, None)
