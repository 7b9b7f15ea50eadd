"""The election of a leader: the distributor that holds one advisory lock of the shared PostgreSQL leads.

The lock belongs to a session of its own. The server ends that session after ``SESSION_TIMEOUT_S`` without a query
(``idle_session_timeout``). So a leader that was killed, stopped or cut off loses the lock by the server's clock, and no
standby has to judge it. (A process under SIGSTOP keeps its connection, and its kernel answers keepalives.) A thread of
its own sends a query every ``_BEAT_S``: a leader whose event loop is busy for seconds still leads.

The leader counts by its own clock. The session lasts at least for the timeout after the *sending* of the last query
that was answered. After that the leader counts as deposed, whether it has heard so or not. A standby asks for the lock
again and again; it does not queue, because the lock would then go to a standby that was stopped while it waited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import trio

from srtm.errors import Unavailable

SESSION_TIMEOUT_S = 2.5
ASK_S = 0.25  # time between two questions of a standby for the lock
_BEAT_S = 0.5
_CLOSING_S = 1.0  # an orderly end frees the lock at once; a session that hangs is left to the server


class Session(Protocol):
    """The connection that holds the lock or asks for it.

    Methods block, and raise Unavailable when the connection is lost. One thread at a time uses it, except for ``wake``.
    """

    def try_lock(self) -> bool:
        """Whether the lock is ours now."""

    def beat(self) -> None:
        """Send any query."""

    def wait(self, max_s: float) -> None:
        """Until ``max_s`` is over or ``wake`` is called; raises as soon as the connection is lost."""

    def wake(self) -> None:
        """End the wait of another thread, or the next one."""

    def close(self) -> None:
        """Give the lock back."""


class Term:
    """The time for which a session holds the lock.

    ``won_ns``: when the question for the lock was sent. ``clock_ns`` goes on while the process is stopped, and
    while the host is suspended.
    """

    def __init__(self, session: Session, won_ns: int, clock_ns: Callable[[], int]) -> None:
        self.lost_because = "the time for which it is sure is over"
        self._session = session
        self._clock_ns = clock_ns
        self._sure_until_ns = _lasts_until(won_ns)
        self._over = threading.Event()
        self._closed = trio.Event()

    @property
    def is_sure(self) -> bool:
        """Whether the lock is ours now. Any thread may ask."""
        return not self._over.is_set() and self._clock_ns() < self._sure_until_ns

    async def hold(self) -> None:
        """Hold the lock until it is not sure any more, or until cancelled; then give it back. Call it once, at once."""
        token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._beat_and_close, args=(token,), name="election", daemon=True).start()
        try:
            while self.is_sure:
                with trio.move_on_after((self._sure_until_ns - self._clock_ns()) / 1e9):
                    await self._closed.wait()
        finally:
            self._over.set()
            self._session.wake()
            with trio.move_on_after(_CLOSING_S, shield=True):
                await self._closed.wait()

    def _beat_and_close(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            while self.is_sure:
                asked_ns = self._clock_ns()
                self._session.beat()
                self._sure_until_ns = _lasts_until(asked_ns)
                self._session.wait(_BEAT_S)
        except Unavailable as error:
            self.lost_because = str(error)
        finally:
            self._over.set()
            self._session.close()
            with suppress(trio.RunFinishedError):  # nobody waits for it any more
                token.run_sync_soon(self._closed.set)


class Election:
    """Asks for the lock. ``open_session`` blocks, and raises Unavailable."""

    def __init__(self, open_session: Callable[[], Session], clock_ns: Callable[[], int] | None = None) -> None:
        self._open_session = open_session
        self._clock_ns = clock_ns or _boot_ns
        self._session: Session | None = None

    async def ask(self) -> Term | None:
        """The term that begins now; None if another distributor leads. Raises Unavailable; ask again then."""
        return await trio.to_thread.run_sync(self._ask)

    async def aclose(self) -> None:
        """End the session that asks."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._close)

    def _ask(self) -> Term | None:
        session = self._session = self._session or self._open_session()
        asked_ns = self._clock_ns()
        try:
            won = session.try_lock()
        except Unavailable:
            self._close()
            raise
        if not won:
            return None
        self._session = None
        return Term(session, asked_ns, self._clock_ns)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _boot_ns() -> int:
    """CLOCK_BOOTTIME: it goes on while the host is suspended, as the server's clock does."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _lasts_until(asked_ns: int) -> int:
    return asked_ns + round(SESSION_TIMEOUT_S * 1e9)
