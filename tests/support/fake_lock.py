"""The lock of ``distributor.leadership.election`` in memory."""

from __future__ import annotations

import threading

from distributor.leadership.election import Election
from srtm.errors import Unavailable


class Lock:
    """Sessions for an ``Election``; ``clock_ns`` stands still until it is set."""

    def __init__(self) -> None:
        self.now_ns = 10**15
        self.is_free = True
        self.is_away = False
        self.beats = 0
        self.opened = 0
        self.closed = 0
        self.answers = threading.Event()  # cleared: a beat gets no answer
        self.answers.set()
        self.asked = threading.Event()
        self._woken = threading.Event()

    def open(self) -> Lock:
        self.opened += 1
        self._check()
        return self

    def clock_ns(self) -> int:
        return self.now_ns

    def election(self) -> Election:
        return Election(self.open, self.clock_ns)

    def try_lock(self) -> bool:
        self._check()
        return self.is_free

    def beat(self) -> None:
        self.asked.set()
        assert self.answers.wait(30)
        self._check()
        self.beats += 1

    def wait(self, max_s: float) -> None:  # noqa: ARG002 - until woken, in a test
        assert self._woken.wait(30)
        self._woken.clear()
        self._check()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self.closed += 1

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def _check(self) -> None:
        if self.is_away:
            raise Unavailable("the store is away")
