"""Drains a broker: it takes no new messages, delivers the others, hands MQTT's sessions over, and ends.

Consumers keep their connections until the last message is delivered, and new ones may come. A signal stops the process
at once, as always.
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

_SESSIONS_PERIOD_S = 0.05
_STUCK_S = 10.0  # so long no session has been taken by another broker: they stay in the data directory
_LINGER_S = 1.0  # before the end: who polls sees "drained", and knows that the broker did not crash


class Drain:
    """``begin`` it any time, ``run`` it once. ``may_end`` tells whether the broker has given up what else it holds."""

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
        self.sessions_left = 0  # that no other broker has taken
        self._latest: tuple[MessagesLeft, list[str]] = (MessagesLeft(), [])

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    def begin(self, reason: str, *, refuse_after_s: float = 0.0) -> None:
        """Begin to drain: after ``refuse_after_s`` publishers are refused with ``reason``. A second call changes
        nothing."""
        if self._begun.is_set():
            return
        self._reason = reason
        self._refuse_at_s = trio.current_time() + refuse_after_s
        self._begun.set()

    def progress(self) -> DrainProgress:
        """As of now. Raises RuntimeError if the engine has stopped."""
        if not self._drained:
            self._update()
        return self.latest

    @property
    def latest(self) -> DrainProgress:
        """As of the latest update."""
        left, why = self._latest
        state = "drained" if self._drained else "draining" if self._begun.is_set() else "serving"
        return DrainProgress(broker=self._name, state=state, left=left, obstacles=why)

    async def run(self, note: Callable[[], None] = lambda: None) -> None:
        """Returns when no message is left and those who poll could see it; never, if no drain begins. ``note`` is
        called after every update."""
        await self._begun.wait()
        self._log.info("draining", left=self._update()[0].total)
        await trio.sleep_until(self._refuse_at_s)
        self.refuses = True
        self._engine.set_accepting(False, self._reason)
        backoff = Backoff(first_s=0.05, longest_s=1.0)  # the engine has no event for "empty"
        while self._update()[0].total or not self._may_end():
            note()
            await trio.sleep(backoff.next_s())
        await self._hand_over_sessions(note)
        self._drained = True
        note()
        self._log.info("drained")
        await trio.sleep(_LINGER_S)

    async def _hand_over_sessions(self, note: Callable[[], None]) -> None:
        least, since_s = None, trio.current_time()
        while left := self._engine.hand_over_mqtt_sessions():
            self.sessions_left = left
            if least is None or left < least:
                least, since_s = left, trio.current_time()
            elif trio.current_time() - since_s >= _STUCK_S:
                self._log.warning("no other broker takes the sessions that are left", sessions=left)
                return
            note()
            await trio.sleep(_SESSIONS_PERIOD_S)
        self.sessions_left = 0

    def _update(self) -> tuple[MessagesLeft, list[str]]:
        now = snapshot.take(self._engine)
        self._latest = (messages_left(now), obstacles(now))
        return self._latest
