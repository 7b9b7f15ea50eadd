"""Circuit breakers (Nygard, "Release It!"): who does not answer is not waited for. Time is a parameter."""

from __future__ import annotations

FAILURES = 3  # in a row
_PROBE_NS = 10**9


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


class CircuitBreaker:
    """A breaker without a task of its own: while it is open, one question a second is the probe."""

    def __init__(self) -> None:
        self._breaker = Breaker()
        self._probe_at = 0

    def admits(self, now_ns: int) -> bool:
        """Whether to ask now."""
        if not self._breaker.is_open:
            return True
        if now_ns < self._probe_at:
            return False
        self._probe_at = now_ns + _PROBE_NS
        return True

    def note(self, answered: bool, now_ns: int) -> None:
        """Note whether there was an answer."""
        if answered:
            self._breaker.succeeded()
            return
        self._breaker.failed()
        self._probe_at = now_ns + _PROBE_NS
