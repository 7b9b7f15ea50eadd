"""Exponential back-off with jitter, so that the many clients of a dead broker do not return at one instant."""

from __future__ import annotations

import random


class Backoff:
    """Delays that start at ``first_s`` and double up to ``longest_s``. Each is drawn from 50 to 100 % of its value."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Return the next delay, s."""
        delay_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, self._longest_s)
        return delay_s

    def reset(self) -> None:
        """Start from the shortest delay again, after a success."""
        self._next_s = self._first_s
