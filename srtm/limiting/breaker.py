"""A circuit breaker: who does not answer is not waited for. Time is a parameter."""

from __future__ import annotations

_MISSES = 3  # in a row
_PROBE_NS = 10**9


class CircuitBreaker:
    """Open after three misses in a row; then one question a second is a probe, and the first answer closes it."""

    def __init__(self) -> None:
        self._missed = 0
        self._probe_at = 0

    def admits(self, now_ns: int) -> bool:
        """Whether to ask now."""
        if self._missed < _MISSES:
            return True
        if now_ns < self._probe_at:
            return False
        self._probe_at = now_ns + _PROBE_NS
        return True

    def note(self, answered: bool, now_ns: int) -> None:
        """Note whether there was an answer."""
        if answered:
            self._missed = 0
            return
        self._missed += 1
        self._probe_at = now_ns + _PROBE_NS
