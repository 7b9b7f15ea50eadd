"""Which rate to try next, on the way to the largest that keeps a promise. Pure.

Doubling until one breaks it, then the middle (of the logarithms) between the largest kept and the smallest broken. A
rate that breaks the promise is not tried again, nor anything above it.
"""

from __future__ import annotations

import math

WITHIN = 0.05  # of the result: closer cannot be told from what the next minute would give


class Climb:
    """Ask for ``next``, then say ``keep`` or ``fail`` of it."""

    def __init__(self, first: float, most: float) -> None:
        """Rates in msg/s, 0 < ``first`` <= ``most``."""
        self.kept = 0.0  # the largest; 0: none yet
        self.broken: float | None = None  # the smallest
        self._most = most
        self._next = first

    @property
    def next(self) -> float | None:
        """None: it is found, or ``most`` is kept."""
        if self.broken is None:
            return self._next if self.kept < self._most else None
        if not self.kept:
            return self._next if self._next >= 1 else None
        return self._next if self.broken > self.kept * (1 + WITHIN) else None

    def keep(self) -> None:
        self.kept = self._next
        self._next = min(2 * self.kept, self._most) if self.broken is None else math.sqrt(self.kept * self.broken)

    def fail(self) -> None:
        self.broken = self._next
        self._next = math.sqrt(self.kept * self.broken) if self.kept else self.broken / 4
