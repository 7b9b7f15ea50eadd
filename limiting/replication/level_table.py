"""The levels of many subjects: units that are taken and have not drained yet, by subject and policy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from limiting.replication.refill import Key


def decayed(units: int, rate: int, elapsed_ns: int) -> int:
    """A level after ``elapsed_ns`` at ``rate`` units/ns, in units."""
    return max(0, units - rate * max(0, elapsed_ns))


class LevelTable:
    """``rates``: units/ns, one for each policy."""

    def __init__(self, rates: Sequence[int]) -> None:
        self._rates = list(rates)
        self._levels: dict[Key, tuple[int, int]] = {}  # units, at ns

    def __len__(self) -> int:
        return len(self._levels)

    def __contains__(self, key: Key) -> bool:
        return key in self._levels

    def level(self, key: Key, at_ns: int) -> int | None:
        """Units at ``at_ns``. None: it is not there."""
        found = self._levels.get(key)
        return None if found is None else decayed(found[0], self._rates[key[1]], at_ns - found[1])

    def put(self, key: Key, units: int, at_ns: int) -> None:
        """Set the level at ``at_ns``, of a new subject too."""
        self._levels[key] = units, at_ns

    def add(self, key: Key, units: int, at_ns: int) -> int | None:
        """Add ``units``; below 0 take away, down to a level of 0. Return the level. None: it is not there."""
        found = self._levels.get(key)
        if found is None:
            return None
        at_ns = max(at_ns, found[1])
        level = max(0, decayed(found[0], self._rates[key[1]], at_ns - found[1]) + units)
        self._levels[key] = level, at_ns
        return level

    def add_to_all(self, units: Sequence[int], at_ns: int) -> None:
        """Add ``units``, one for each policy."""
        for key in self._levels:
            self.add(key, units[key[1]], at_ns)

    def change(self, rates: Sequence[int], at_ns: int) -> None:
        """From ``at_ns`` on levels drain at these rates."""
        self.add_to_all([0] * len(self._rates), at_ns)
        self._rates = list(rates)

    def levels(self, at_ns: int) -> list[tuple[Key, int]]:
        """All levels at ``at_ns``."""
        return [
            (key, decayed(units, self._rates[key[1]], at_ns - since_ns))
            for key, (units, since_ns) in self._levels.items()
        ]

    def forget(self, policies: Collection[int], kept: Collection[Key], at_ns: int) -> int:
        """Drop what has drained, of these policies, but for the ``kept``. Return how many."""
        idle = [key for key, units in self.levels(at_ns) if units == 0 and key[1] in policies and key not in kept]
        for key in idle:
            del self._levels[key]
        return len(idle)
