"""Reports of an outage: each reason is logged once, even if several reasons alternate."""

from __future__ import annotations

_MAX_REASONS = 16  # beyond this, the reasons contain something that changes every time


class Outage:
    """The reasons of failure reported since the last success."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def is_news(self, reason: str) -> bool:
        """Note a failure, and return whether its ``reason`` should be logged."""
        if reason in self._reported or len(self._reported) >= _MAX_REASONS:
            return False
        self._reported.add(reason)
        return True

    def ends(self) -> bool:
        """Note a success, and return whether it ends an outage."""
        had_begun = bool(self._reported)
        self._reported.clear()
        return had_begun
