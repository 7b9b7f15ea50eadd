"""The level of each subject and policy: what is taken of a bucket and has not drained yet.

``level = max(0, level - r dt)`` is the bucket of ``srtm.token_bucket.bucket`` seen from below: fill = b - level. A
subject that nobody has taken from has no slot.

Slots are bounded. Beyond the bound new subjects are counted in 1,024 shared places, by hash: those of this node and
those that peers tell of. A place's level is never below that of a subject in it, and where there is room again such a
subject begins with the level of its place. So a flood of new subjects may count twice, never not at all. On the wire a
subject has its own name always: each node counts it where it has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from limiting.replication.refill import Key, Refill
from srtm.token_bucket.bucket import UNITS_PER_MICRO

SHARED_PLACES = 1_024


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


class Slot:
    """``level``: units at ``at_ns``; ``unsent``: own takes that no peer was told of; ``unacked``: own takes that not
    every peer has confirmed."""

    __slots__ = ("at_ns", "level", "unacked", "unsent")

    def __init__(self, level: int, at_ns: int) -> None:
        self.level = level
        self.at_ns = at_ns
        self.unsent = 0
        self.unacked = 0


class Levels:
    """All levels of one node, by its own clock.

    ``assumed``: units that a subject without a slot counts as having taken at ``at_ns``, one for each policy. A node
    that may have forgotten something assumes the burst: such a bucket starts empty. ``most``: slots, without those of
    shared places. ``starts_empty``: so does the bucket of every new subject, at the instant at which it is asked for.
    """

    def __init__(self, refills: Sequence[Refill], assumed: Sequence[int], at_ns: int) -> None:
        self.refills = list(refills)
        self._part = 1, 1
        self._set_numbers()
        self._slots: dict[Key, Slot] = {}
        self._assumed = list(assumed)
        self._assumed_ns = at_ns
        self.most = 1 << 62
        self.starts_empty = False

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, key: Key, at_ns: int) -> Slot:
        """The slot of ``key`` with its level as of ``at_ns``, made where there is none; beyond the bound that of its
        place."""
        slot = self._slots.get(key)
        if slot is None and self.is_shared(key):
            key = place_of(key)
            slot = self._slots.get(key)
        rate = self.rates[key[1]]
        if slot is None:
            slot = self._slots[key] = Slot(self.level(key, at_ns), at_ns)
        elif at_ns > slot.at_ns:
            level = slot.level - rate * (at_ns - slot.at_ns)
            slot.level = level if level > 0 else 0
            slot.at_ns = at_ns
        return slot

    def has(self, key: Key) -> bool:
        return key in self._slots

    def is_shared(self, key: Key) -> bool:
        """Whether ``key`` is counted in a shared place. There it stays while that has something to tell of."""
        if key in self._slots:
            return False
        place = self._slots.get(place_of(key))
        return len(self._slots) >= self.most or (place is not None and _busy(place))

    def level(self, key: Key, at_ns: int) -> int:
        """In units at ``at_ns``. It changes nothing."""
        slot = self._slots.get(key)
        if slot is not None:
            return decayed(slot.level, self.rates[key[1]], at_ns - slot.at_ns)
        known = self._known(key, at_ns)
        return joined(known, self.bursts[key[1]]) if self.starts_empty else known

    def _known(self, key: Key, at_ns: int) -> int:
        """What may have been taken of a subject without a slot."""
        assumed = decayed(self._assumed[key[1]], self.rates[key[1]], at_ns - self._assumed_ns)
        place = place_of(key)
        return joined(assumed, self.level(place, at_ns)) if place in self._slots else assumed

    def live(self, at_ns: int) -> Iterator[tuple[Key, Slot]]:
        """Slots with a level at ``at_ns``."""
        for key in list(self._slots):
            slot = self.slot(key, at_ns)
            if slot.level:
                yield key, slot

    def assume(self, units: Sequence[int], at_ns: int) -> None:
        """From now on a subject without a slot counts as having taken ``units``, one for each policy."""
        self._assumed, self._assumed_ns = list(units), at_ns

    def assumed(self, at_ns: int) -> list[int]:
        """What a subject without a slot counts as having taken, units, one for each policy."""
        return [
            decayed(units, rate, at_ns - self._assumed_ns)
            for units, rate in zip(self._assumed, self.rates, strict=True)
        ]

    def fill(self, at_ns: int) -> None:
        """Count a full burst as taken from every subject at ``at_ns``, also from those without a slot."""
        for key in list(self._slots):
            slot = self.slot(key, at_ns)
            slot.level = joined(slot.level, self.bursts[key[1]])
        self.assume(self.bursts, at_ns)

    def add_to_all(self, units: Sequence[int], at_ns: int) -> None:
        """Add ``units``, one for each policy, to every subject, also to those without a slot."""
        for key in list(self._slots):
            self.slot(key, at_ns).level += units[key[1]]
        self.assume([now + more for now, more in zip(self.assumed(at_ns), units, strict=True)], at_ns)

    def set_part(self, part: int, of: int, at_ns: int) -> None:
        """From ``at_ns`` on the buckets are ``part / of`` of the whole, rounded down. Levels stay: none gains a
        token."""
        self._bring_to(at_ns)
        self._part = part, of
        self._set_numbers()

    def change(self, refills: Sequence[Refill], at_ns: int) -> None:
        """From ``at_ns`` on the policies have these numbers, as many as before. Levels stay: none gains a token."""
        self._bring_to(at_ns)
        self.refills = list(refills)
        self._set_numbers()

    def _bring_to(self, at_ns: int) -> None:
        for key in list(self._slots):
            self.slot(key, at_ns)
        self.assume(self.assumed(at_ns), at_ns)

    def _set_numbers(self) -> None:
        part, of = self._part
        self.rates = [refill.rate_micro * part // of for refill in self.refills]  # units/ns
        self.bursts = [refill.burst_micro * part // of * UNITS_PER_MICRO for refill in self.refills]  # units

    def forget(self, at_ns: int) -> int:
        """Drop the slots that say no more than their absence would. Return how many."""
        assumed = self.assumed(at_ns)
        idle = [
            key
            for key in self._slots
            if self.slot(key, at_ns).level == 0 == assumed[key[1]] and not _busy(self._slots[key])
        ]
        for key in idle:
            del self._slots[key]
        return len(idle)

    def snapshot(self, at_ns: int) -> tuple[tuple[Key, int], ...]:
        """(key, level) of all live subjects at ``at_ns``, without any instant."""
        return tuple((key, slot.level) for key, slot in self.live(at_ns))

    def begin(self, theirs: Iterable[tuple[Key, int]], heard: Mapping[Key, int], at_ns: int) -> None:
        """Begin anew with the levels of a peer, units, plus what was ``heard`` since the start. Nothing is assumed any
        more."""
        own, self._slots = self._slots, {}
        self.assume([0] * len(self.refills), at_ns)
        for key, before in own.items():
            if _busy(before):
                slot = self.slot(key, at_ns)
                slot.unsent, slot.unacked = before.unsent, before.unacked
        self.join(theirs, at_ns)
        for key, units in heard.items():
            self.slot(key, at_ns).level += max(0, units)
        shared = {key: units for key, units in heard.items() if key == place_of(key) and units > 0}
        for key in self._slots if shared else ():  # what was heard of a place may have been of any subject in it
            if key not in shared:
                self.slot(key, at_ns).level += shared.get(place_of(key), 0)

    def join(self, theirs: Iterable[tuple[Key, int]], at_ns: int) -> None:
        """Take the larger of each level and ``theirs``, which are levels of this instant."""
        for key, level in theirs:
            if key not in self._slots and not self.is_shared(key):  # it is new to this node only
                self._slots[key] = Slot(self._known(key, at_ns), at_ns)
            slot = self.slot(key, at_ns)
            slot.level = joined(slot.level, level)


def _busy(slot: Slot) -> bool:
    return bool(slot.unsent or slot.unacked)
