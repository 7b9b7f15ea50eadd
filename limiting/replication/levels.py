"""The level of each subject and policy: what is taken of a bucket and has not drained yet.

``level = max(0, level - r dt)`` is the bucket of ``srtm.token_bucket.bucket`` seen from below: fill = b - level. A
subject that nobody has taken from is not there.

Levels are bounded. Beyond the bound new subjects are counted in 1,024 shared places, by hash: those of this node and
those that peers tell of. A place's level is never below that of a subject in it, and where there is room again such a
subject begins with the level of its place. So a flood of new subjects may count twice, never not at all. On the wire a
subject has its own name always: each node counts it where it has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from limiting.replication.refill import Key, Refill
from srtm._native import LevelTable
from srtm.token_bucket.bucket import UNITS_PER_MICRO

SHARED_PLACES = 1_024
_Key = TypeVar("_Key")


def decayed(units: int, rate: int, elapsed_ns: int) -> int:
    """A level after ``elapsed_ns`` at ``rate`` units/ns, in units."""
    return max(0, units - rate * max(0, elapsed_ns))


def place_of(key: Key) -> Key:
    """Where a subject beyond the bound is counted. A place is its own place."""
    subject, policy = key
    number = int.from_bytes(subject[:2], "big") % SHARED_PLACES
    return number.to_bytes(2, "big") + bytes(len(subject) - 2), policy


def joined(mine: int, theirs: int) -> int:
    """The join of two levels of the same instant (law L5): commutative, associative, idempotent, monotone."""
    return max(mine, theirs)


class Levels:
    """All levels of one node, by its own clock.

    ``assumed``: units that a subject that is not there counts as having taken at ``at_ns``, one for each policy. A node
    that may have forgotten something assumes the burst: such a bucket starts empty. ``most``: levels, without those of
    shared places. ``starts_empty``: so does the bucket of every new subject, at the instant at which it is asked for.
    ``unsent``: own takes that no peer was told of; ``unacked``: own takes that not every peer has confirmed, of a place
    those of all subjects in it. Both in units, and empty for most subjects.
    """

    def __init__(self, refills: Sequence[Refill], assumed: Sequence[int], at_ns: int) -> None:
        self.refills = list(refills)
        self._part = 1, 1
        self._set_numbers()
        self._table = LevelTable(self.rates)
        self._assumed = list(assumed)
        self._assumed_ns = at_ns
        self.most = 1 << 62
        self.starts_empty = False
        self.unsent: dict[Key, int] = {}
        self.unacked: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._table)

    @property
    def bytes(self) -> int:
        """What all levels take in memory."""
        return self._table.bytes()

    def has(self, key: Key) -> bool:
        return key in self._table

    def is_shared(self, key: Key) -> bool:
        """Whether ``key`` is counted in a shared place. There it stays while that has something to tell of."""
        if key in self._table:
            return False
        return len(self._table) >= self.most or self._is_busy(place_of(key))

    def kept(self, key: Key) -> Key:
        """Where ``key`` is counted: itself, or its place."""
        return key if key in self._table or not self.is_shared(key) else place_of(key)

    def _is_busy(self, key: Key) -> bool:
        return key in self.unsent or key in self.unacked

    # one subject

    def level(self, key: Key, at_ns: int) -> int:
        """In units at ``at_ns``. It changes nothing."""
        level = self._table.level(key, at_ns)
        if level is not None:
            return level
        known = self._known(key, at_ns)
        return joined(known, self.bursts[key[1]]) if self.starts_empty else known

    def _known(self, key: Key, at_ns: int) -> int:
        """What may have been taken of a subject that is not there."""
        assumed = decayed(self._assumed[key[1]], self.rates[key[1]], at_ns - self._assumed_ns)
        place = place_of(key)
        return joined(assumed, self.level(place, at_ns)) if place in self._table else assumed

    def ask(self, key: Key, at_ns: int) -> int:
        """The level where ``key`` is counted: from now on it is there."""
        level = self._table.level(key, at_ns)
        return self.level(self._made(key, at_ns), at_ns) if level is None else level

    def add(self, key: Key, units: int, at_ns: int) -> int:
        """Count ``units`` as taken; below 0 give back, at most what is taken. Return the level."""
        level = self._table.add(key, units, at_ns)
        if level is None:
            level = self._table.add(self._made(key, at_ns), units, at_ns)
        assert level is not None
        return level

    def raise_to(self, key: Key, units: int, at_ns: int) -> None:
        """Join the level with ``units`` at ``at_ns``."""
        level = self.ask(key, at_ns)
        self.add(key, joined(level, units) - level, at_ns)

    def _made(self, key: Key, at_ns: int) -> Key:
        kept = self.kept(key)
        if kept not in self._table:
            self._table.put(kept, self.level(kept, at_ns), at_ns)
        return kept

    # all subjects

    def assume(self, units: Sequence[int], at_ns: int) -> None:
        """From now on a subject that is not there counts as having taken ``units``, one for each policy."""
        self._assumed, self._assumed_ns = list(units), at_ns

    def assumed(self, at_ns: int) -> list[int]:
        """What a subject that is not there counts as having taken, units, one for each policy."""
        return [
            decayed(units, rate, at_ns - self._assumed_ns)
            for units, rate in zip(self._assumed, self.rates, strict=True)
        ]

    def fill(self, at_ns: int) -> None:
        """Count a full burst as taken from every subject at ``at_ns``, also from those that are not there."""
        self._table.raise_all(self.bursts, at_ns)
        self.assume(self.bursts, at_ns)

    def add_to_all(self, units: Sequence[int], at_ns: int) -> None:
        """Add ``units``, one for each policy, to every subject, also to those that are not there."""
        self._table.add_to_all(units, at_ns)
        self.assume([now + more for now, more in zip(self.assumed(at_ns), units, strict=True)], at_ns)

    def set_part(self, part: int, of: int, at_ns: int) -> None:
        """From ``at_ns`` on the buckets are ``part / of`` of the whole, rounded down. Levels stay: none gains a
        token."""
        self._part = part, of
        self._change(at_ns)

    def change(self, refills: Sequence[Refill], at_ns: int) -> None:
        """From ``at_ns`` on the policies have these numbers, as many as before. Levels stay: none gains a token."""
        self.refills = list(refills)
        self._change(at_ns)

    def _change(self, at_ns: int) -> None:
        self.assume(self.assumed(at_ns), at_ns)
        self._set_numbers()
        self._table.change(self.rates, at_ns)

    def _set_numbers(self) -> None:
        part, of = self._part
        self.rates = [refill.rate_micro * part // of for refill in self.refills]  # units/ns
        self.bursts = [refill.burst_micro * part // of * UNITS_PER_MICRO for refill in self.refills]  # units

    def forget(self, at_ns: int) -> int:
        """Drop the levels that say no more than their absence would. Return how many."""
        policies = [policy for policy, assumed in enumerate(self.assumed(at_ns)) if assumed == 0]
        return self._table.forget(policies, self.unsent.keys() | self.unacked.keys(), at_ns)

    def snapshot(self, at_ns: int) -> tuple[tuple[Key, int], ...]:
        """(key, level) of all live subjects at ``at_ns``, without any instant."""
        return tuple(each for each in self._table.levels(at_ns) if each[1])

    def begin(self, theirs: Iterable[tuple[Key, int]], heard: Mapping[Key, int], at_ns: int) -> None:
        """Begin anew with the levels of a peer, units, plus what was ``heard`` since the start. Nothing is assumed any
        more."""
        self._table = LevelTable(self.rates)
        self.assume([0] * len(self.refills), at_ns)
        for key in (*self.unsent, *self.unacked):
            self.ask(key, at_ns)
        self.join(theirs, at_ns)
        for key, units in heard.items():
            self.add(key, max(0, units), at_ns)
        shared = {key: units for key, units in heard.items() if key == place_of(key) and units > 0}
        for key, _ in self._table.levels(at_ns) if shared else ():
            if key not in shared:  # what was heard of a place may have been of any subject in it
                self.add(key, shared.get(place_of(key), 0), at_ns)

    def join(self, theirs: Iterable[tuple[Key, int]], at_ns: int) -> None:
        """Take the larger of each level and ``theirs``, which are levels of this instant."""
        for key, level in theirs:
            if key not in self._table and not self.is_shared(key):  # it is new to this node only
                self._table.put(key, self._known(key, at_ns), at_ns)
            self.raise_to(key, level, at_ns)


def add_up(of: dict[_Key, int], key: _Key, more: int) -> None:
    """Add ``more``. What comes to 0 is dropped."""
    after = of.get(key, 0) + more
    if after:
        of[key] = after
    else:
        of.pop(key, None)
