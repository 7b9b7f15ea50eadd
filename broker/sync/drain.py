"""Draining a broker: it takes no new messages, delivers what it has, and ends when nothing is left.

Consumers keep their connections, and may still come, until the last message is out. Whoever stops the process earlier
stops it at once, as always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from broker import snapshot
from broker.sync.remaining_messages import messages_left, obstacles
from srtm.concurrency.backoff import Backoff
from srtm.control import DrainProgress, MessagesLeft
from srtm.log import Log

if TYPE_CHECKING:
    from srtm._native import Engine

# Whoever watches sees "drained" within this time, and so knows that the end was no crash.
_LINGER_S = 1.0


class Drain:
    """``begin`` it any time; ``run`` it once. ``may_end``: whether the broker has given up what else it holds."""

    def __init__(self, name: str, engine: Engine, log: Log, may_end: Callable[[], bool] = lambda: True) -> None:
        self._name = name
        self._engine = engine
        self._log = log
        self._may_end = may_end
        self._begun = trio.Event()
        self._reason = ""
        self._refuse_at_s = 0.0
        self.refuses = False  # publishers are refused from now on
        self._drained = False
        self._seen: tuple[MessagesLeft, list[str]] = (MessagesLeft(), [])

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    def begin(self, reason: str, *, refuse_after_s: float = 0.0) -> None:
        """Publishers are refused with ``reason``; aware ones may be told to move before. Once; again changes
        nothing."""
        if self._begun.is_set():
            return
        self._reason = reason
        self._refuse_at_s = trio.current_time() + refuse_after_s
        self._begun.set()

    def progress(self) -> DrainProgress:
        """Now. Raises RuntimeError when the engine has stopped."""
        if not self._drained:
            self._look()
        return self.latest

    @property
    def latest(self) -> DrainProgress:
        """As of the last look."""
        left, why = self._seen
        state = "drained" if self._drained else "draining" if self._begun.is_set() else "serving"
        return DrainProgress(broker=self._name, state=state, left=left, obstacles=why)

    async def run(self, note: Callable[[], None] = lambda: None) -> None:
        """Returns when nothing is left, and those who watch had time to see it; never, if it never begins. ``note`` is
        called as often as it looks."""
        await self._begun.wait()
        self._log.info("draining", left=self._look()[0].total)
        await trio.sleep_until(self._refuse_at_s)
        self.refuses = True
        self._engine.set_accepting(False, self._reason)
        backoff = Backoff(first_s=0.05, longest_s=1.0)  # the engine has no word for "empty"
        while self._look()[0].total or not self._may_end():
            note()
            await trio.sleep(backoff.next_s())
        self._drained = True
        note()
        self._log.info("drained")
        await trio.sleep(_LINGER_S)

    def _look(self) -> tuple[MessagesLeft, list[str]]:
        now = snapshot.take(self._engine)
        self._seen = (messages_left(now), obstacles(now))
        return self._seen
