"""What is said of a time in which nothing works: each reason once, however they take turns (of two distributors that
are both away each has its own)."""

from __future__ import annotations

_MOST_REASONS = 16  # more than that have something in them that changes every time


class Outage:
    """From the first failure to the next success."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def is_news(self, reason: str) -> bool:
        """Of a failure: whether ``reason`` is to be said."""
        if reason in self._said or len(self._said) >= _MOST_REASONS:
            return False
        self._said.add(reason)
        return True

    def ends(self) -> bool:
        """Of a success: whether it ends an outage."""
        had_begun = bool(self._said)
        self._said.clear()
        return had_begun
