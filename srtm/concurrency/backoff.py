"""How long to wait before the next try: doubling, with jitter, so that a thousand clients of one dead broker do not
come back at one instant."""

from __future__ import annotations

import random


class Backoff:
    """Delays of ``first_s``, doubled each time up to ``longest_s``, each drawn from the upper half of its range."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        delay_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, self._longest_s)
        return delay_s

    def reset(self) -> None:
        """It worked: the next trouble starts from the shortest delay again."""
        self._next_s = self._first_s
