"""The circuit breaker (Nygard, "Release It!"): after some failures in a row nobody waits any more. Pure."""

from __future__ import annotations

FAILURES = 3


class Breaker:
    """Closed: calls are made. Open: none is, until a probe that nobody waits for has succeeded."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def is_open(self) -> bool:
        return self._failures >= FAILURES

    def succeeded(self) -> bool:
        """Note a call or probe that was answered. True: it was open."""
        was_open, self._failures = self.is_open, 0
        return was_open

    def failed(self) -> bool:
        """Note one that was not. True: this opened it."""
        self._failures += 1
        return self._failures == FAILURES
