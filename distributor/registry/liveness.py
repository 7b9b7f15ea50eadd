"""When each broker has synced last, by the monotonic clock.

Observed, not stored: after a restart every broker is silent until it syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio


class Liveness:
    """A broker is heard for ``timeout_s`` after each sync, or after the end of the wait that it asked for."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._started_s = trio.current_time()
        self._last_s: dict[str, float] = {}
        self._heard_until_s: dict[str, float] = {}
        self._first_heard = trio.Event()  # set, and made anew, when a broker is heard for the first time
        self._since_s: dict[str, float] = {}  # when the present time without a silence began

    def hear(self, broker: str, wait_s: float) -> None:
        """``broker`` syncs now, and may wait ``wait_s`` for the answer."""
        if broker not in self._last_s:
            self._first_heard.set()
            self._first_heard = trio.Event()
        if not self.is_heard(broker):
            self._since_s[broker] = trio.current_time()
        self._last_s[broker] = trio.current_time()
        self._heard_until_s[broker] = trio.current_time() + wait_s + self._timeout_s

    def is_heard(self, broker: str) -> bool:
        """Whether its last sync is recent enough."""
        return trio.current_time() <= self._heard_until_s.get(broker, float("-inf"))

    def all_heard(self, expected: Collection[str]) -> bool:
        """Whether each of ``expected`` has synced since the start, or has had ``timeout_s`` to do so."""
        return trio.current_time() >= self._started_s + self._timeout_s or set(expected) <= self._last_s.keys()

    async def wait_all_heard(self, expected: Callable[[], Collection[str]]) -> None:
        """Until ``all_heard``. The expected brokers may change meanwhile."""
        with trio.move_on_at(self._started_s + self._timeout_s):
            while not self.all_heard(expected()):
                await self._first_heard.wait()

    def steady_s(self, broker: str) -> float:
        """Seconds for which ``broker`` is heard without a silence; 0: it is silent."""
        return trio.current_time() - self._since_s[broker] if self.is_heard(broker) else 0.0

    def silent_s(self, broker: str) -> float:
        """Seconds since the last sync, or since the start if there was none."""
        return trio.current_time() - self._last_s.get(broker, self._started_s)

    def last_s_ago(self, broker: str) -> float | None:
        """Seconds since the last sync; None: none since the start."""
        return self.silent_s(broker) if broker in self._last_s else None
