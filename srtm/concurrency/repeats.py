"""Log lines that a client can cause at will: one in a while tells of all."""

from __future__ import annotations

PERIOD_S = 10.0


class Repeats:
    """Counts occurrences, and says when a line is due. Time is a parameter, in seconds."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._next_s = float("-inf")
        self._times = 0

    def note(self, now_s: float) -> int:
        """Note an occurrence. Returns how many a line is to tell of: those since the last line; 0: no line is due."""
        self._times += 1
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + self._period_s
        times, self._times = self._times, 0
        return times
