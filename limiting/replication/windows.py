"""Windows as replicated data: what is taken of each subject, by slice, at one node.

The slice is part of what nodes tell each other, so a finished window is never counted again. Slices are numbered by the
wall clock: clocks that differ by some ms misplace what comes within these ms of a slice's edge, and nothing else (law
L6). A slice that is ahead of this node's clock counts at once. One that is ahead by more than a window is of a clock
that is wrong, or of a window that was changed: what it has counts from now on. Links apply each increment once (law
L1), so a count for each origin would say no more.

Counts are bounded. Beyond the bound new subjects are counted in 1,024 shared places, by hash: those of this node and
those that peers tell of. Where there is room again such a subject begins with the counts of its place. So a flood of
new subjects may count twice, never not at all. On the wire a subject has its own name always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from limiting.replication.levels import add_up, place_of
from limiting.replication.refill import Key, SliceKey, Subject
from srtm._native import SliceTable
from srtm.contracts.policy import Window
from srtm.token_bucket.bucket import TOKEN


def slice_ns(window: Window) -> int:
    """The length of a slice."""
    return window.window_ns // window.slices


def slice_at(window: Window, wall_ns: int) -> int:
    """The number of the slice at ``wall_ns``."""
    return wall_ns // slice_ns(window)


def oldest_at(window: Window, wall_ns: int) -> int:
    """The number of the oldest slice that counts at ``wall_ns``, whole or in part."""
    return slice_at(window, wall_ns) - window.slices + (not window.weighted)


class WindowLook:
    """What is left of a window at ``wall_ns``. ``used``: tokens times the ns of a slice, an exact product; ``left`` and
    ``burst``: units; below 0 more is taken than the quota."""

    def __init__(self, window: Window, slices: dict[int, int], wall_ns: int) -> None:
        self._window, self._wall_ns = window, wall_ns
        self._length = slice_ns(window)
        self._first = slice_at(window, wall_ns) - window.slices + 1  # that counts whole
        oldest = oldest_at(window, wall_ns)
        self._inside = {number: tokens for number, tokens in slices.items() if number >= oldest and tokens}
        whole = sum(self._inside.values())
        self.used = whole * self._length - self._inside.get(self._first - 1, 0) * (wall_ns % self._length)
        self.left = (window.quota * self._length - self.used) * TOKEN // self._length
        self.burst = window.quota * TOKEN

    def wait_ns(self, units: int) -> int | None:
        """How long until ``units`` are left. None: never."""
        most = self._window.quota - -(-units // TOKEN)
        return None if most < 0 else self._ns_until(most)

    def reset_ns(self) -> int:
        """How long until everything is left."""
        return self._ns_until(0)

    def _ns_until(self, most: int) -> int:
        """How long until at most ``most`` tokens are in the window. Slices leave it one after the other."""
        if self.used <= most * self._length:
            return 0
        inside = sum(self._inside.values())
        for number in sorted(self._inside):
            tokens = self._inside[number]
            inside -= tokens
            if inside <= most:
                break
        leaves_ns = (number + self._window.slices) * self._length - self._wall_ns
        if not self._window.weighted:
            return leaves_ns
        return leaves_ns + self._length - (most - inside) * self._length // tokens


class Windows:
    """The windows of all subjects. ``rules``: by the number of their policy in the contract. ``assumed``: of every
    subject a whole quota counts as taken at ``wall_ns``. ``most``: counts, without those of shared places."""

    def __init__(self, rules: Mapping[int, Window], wall_ns: int, *, assumed: bool) -> None:
        self.rules = dict(rules)
        self.most = 1 << 62
        self._tables = {number: _table(window) for number, window in rules.items()}
        self._unsent: dict[Key, dict[int, int]] = {}  # own takes that no peer was told of, by slice
        self._assumed: dict[int, dict[int, int]] = {
            number: {slice_at(window, wall_ns): window.quota} if assumed else {} for number, window in rules.items()
        }

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    @property
    def bytes(self) -> int:
        """What all windows take in memory."""
        return sum(table.bytes() for table in self._tables.values())

    def has(self, subject: Subject) -> bool:
        """Something of a subject is in memory."""
        return any(subject in table for table in self._tables.values())

    def look(self, subject: Subject, number: int, wall_ns: int) -> WindowLook:
        """What is left of policy ``number``. It changes nothing."""
        key, slices = (subject, number), self._assumed[number]
        counts = self._counts(key, wall_ns)
        if counts is None:
            counts = self._counts(place_of(key), wall_ns)
        if counts is not None:
            slices = _sum(counts, slices)
        return WindowLook(self.rules[number], slices, wall_ns)

    def _counts(self, key: Key, wall_ns: int) -> dict[int, int] | None:
        return self._tables[key[1]].counts(key[0], self._now(key[1], wall_ns))

    def _now(self, number: int, wall_ns: int) -> int:
        return slice_at(self.rules[number], wall_ns)

    def is_shared(self, key: Key) -> bool:
        """Whether a subject is counted in a shared place. There it stays while that has something to tell of."""
        if key[0] in self._tables[key[1]]:
            return False
        return len(self) >= self.most or bool(self._unsent.get(place_of(key)))

    def take(self, subject: Subject, number: int, tokens: int, wall_ns: int) -> dict[int, int]:
        """Count an own take; below 0: give back, of the newest slice first. Return what was added, by slice."""
        key = self._made((subject, number), wall_ns)
        if tokens > 0:
            parts = {self._now(number, wall_ns): tokens}
        else:
            parts = _of_newest(self._counts(key, wall_ns) or {}, -tokens)
        for at, more in parts.items():
            self._add(key, at, more, wall_ns)
        return parts

    def to_tell(self, key: SliceKey, tokens: int) -> None:
        """Keep an own take, of a subject that is in no shared place, until peers are told."""
        unsent = self._unsent.setdefault((key[0], key[1]), {})
        add_up(unsent, key[2], tokens)
        if not unsent:
            del self._unsent[key[0], key[1]]

    def _made(self, key: Key, wall_ns: int) -> Key:
        """Where a subject is counted: from now on it is there, beyond the bound in its place."""
        kept = place_of(key) if self.is_shared(key) else key
        subject, number = kept
        if subject not in self._tables[number]:
            begins_with = self._counts(place_of(kept), wall_ns) or {}
            self._tables[number].put(subject, begins_with, self._now(number, wall_ns))
        self._drop_unsent(kept, wall_ns)
        return kept

    def _add(self, kept: Key, number: int, tokens: int, wall_ns: int) -> None:
        self._tables[kept[1]].add(kept[0], number, tokens, self._now(kept[1], wall_ns))

    def _drop_unsent(self, key: Key, wall_ns: int) -> None:
        """Of slices that are over nobody has to hear."""
        unsent = self._unsent.get(key)
        if unsent is None:
            return
        oldest = oldest_at(self.rules[key[1]], wall_ns)
        for number in [number for number in unsent if number < oldest]:
            del unsent[number]
        if not unsent:
            del self._unsent[key]

    def told(self, key: SliceKey, tokens: int, wall_ns: int) -> None:
        """Count what a peer took."""
        number = self._placed(key, wall_ns)
        if number is not None:
            self._add(self._made((key[0], key[1]), wall_ns), number, tokens, wall_ns)

    def unsent(self, subject: Subject, number: int) -> dict[int, int]:
        """Own takes that no peer was told of, by slice."""
        return self._unsent.get((subject, number), {})

    def hand_over(self, key: SliceKey) -> int:
        """What no peer was told of in a slice: from now on it counts as told."""
        subject, number, at = key
        unsent = self.unsent(subject, number)
        tokens = unsent.pop(at, 0)
        if not unsent:
            self._unsent.pop((subject, number), None)
        return tokens

    def is_over(self, key: SliceKey, wall_ns: int) -> bool:
        """What was taken in this slice counts no more."""
        return key[2] < oldest_at(self.rules[key[1]], wall_ns)

    def _placed(self, key: SliceKey, wall_ns: int) -> int | None:
        """The slice that a peer's count belongs to. None: it is over."""
        window = self.rules[key[1]]
        if self.is_over(key, wall_ns):
            return None
        now = slice_at(window, wall_ns)
        return key[2] if key[2] <= now + window.slices else now

    # all subjects

    def assumes(self, wall_ns: int) -> bool:
        """Some of what counts as taken of every subject is not over."""
        return any(WindowLook(self.rules[number], slices, wall_ns).used for number, slices in self._assumed.items())

    def snapshot(self, wall_ns: int) -> list[tuple[SliceKey, int]]:
        """What every slice has that is not over, without what peers will still be told of."""
        return [
            ((subject, number, at), told)
            for number, table in self._tables.items()
            for subject, counts in table.all(self._now(number, wall_ns))
            for at, tokens in counts.items()
            if (told := tokens - self.unsent(subject, number).get(at, 0)) > 0
        ]

    def begin(self, theirs: Iterable[tuple[SliceKey, int]], wall_ns: int) -> None:
        """Add a peer's snapshot to what was heard since the start. Nothing is assumed any more."""
        for key, tokens in theirs:
            self.told(key, max(0, tokens), wall_ns)
        self._assumed = {number: {} for number in self.rules}

    def change(self, rules: Mapping[int, Window], wall_ns: int) -> None:
        """Decide by changed windows, as many as before. Where slices change, all that is inside counts from now on."""
        before, self.rules = self.rules, dict(rules)
        for number, new in self.rules.items():
            old = before[number]
            if (old.window_ns, old.slices, old.weighted) == (new.window_ns, new.slices, new.weighted):
                continue
            is_same = (old.window_ns, old.slices) == (new.window_ns, new.slices)
            now, table = slice_at(new, wall_ns), _table(new)
            for subject, counts in self._tables[number].all(slice_at(old, wall_ns)):
                table.put(subject, counts if is_same else _inside(counts, old, wall_ns, now), now)
            self._tables[number] = table
            if not is_same:
                self._assumed[number] = _inside(self._assumed[number], old, wall_ns, now)

    def forget(self, wall_ns: int) -> int:
        """Drop the subjects that have nothing taken. Return how many."""
        for key in list(self._unsent):
            self._drop_unsent(key, wall_ns)
        kept: dict[int, set[Subject]] = {number: set() for number in self.rules}
        for subject, number in self._unsent:
            kept[number].add(subject)
        tables = self._tables.items()
        return sum(table.forget(kept[number], self._now(number, wall_ns)) for number, table in tables)


def _table(window: Window) -> SliceTable:
    return SliceTable(window.slices, window.weighted)


def _inside(counts: Mapping[int, int], window: Window, wall_ns: int, now: int) -> dict[int, int]:
    """All that counts in ``window``, in slice ``now``."""
    oldest = oldest_at(window, wall_ns)
    inside = sum(tokens for at, tokens in counts.items() if at >= oldest)
    return {now: inside} if inside else {}


def _sum(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    if not other:
        return one
    return {number: one.get(number, 0) + other.get(number, 0) for number in one.keys() | other.keys()}


def _of_newest(slices: dict[int, int], tokens: int) -> dict[int, int]:
    """What to add to which slice where ``tokens`` are given back."""
    parts = {}
    for number in sorted(slices, reverse=True):
        back = min(tokens, slices[number])
        if back:
            parts[number] = -back
        tokens -= back
    return parts
