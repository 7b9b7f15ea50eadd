"""Which of several distributors leads: whoever holds one advisory lock of the PostgreSQL that they share.

The lock belongs to a session of its own. The server ends that session when nothing has come from it for
``SESSION_TIMEOUT_S`` (``idle_session_timeout``), so a leader that was killed, stopped (SIGSTOP: its connection stays
open, and its kernel still answers keepalives) or cut off loses the lock by the server's clock, and no standby has to
judge it. While all is well the session says something every ``_BEAT_S``, from a thread of its own: a leader whose event
loop is busy for seconds leads on.

The leader counts by its own clock: the session can last no shorter than the timeout from the *sending* of the last beat
that was answered. Once that is over it takes itself for deposed, whether or not it has heard so. Nobody waits in line
for the lock: standbys ask for it again and again, for one that was stopped while it waited would be given the lock.
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
ASK_S = 0.25  # how often a standby asks for the lock
_BEAT_S = 0.5
_CLOSING_S = 1.0  # an orderly end frees the lock at once; what hangs is left to the server


class Session(Protocol):
    """The connection that has the lock or wants it. Methods block, and raise Unavailable when the connection is lost;
    one thread uses it at a time, but for ``wake``."""

    def try_lock(self) -> bool: ...

    def beat(self) -> None:
        """Ask anything."""

    def rest(self, longest_s: float) -> None:
        """Until the time is over or ``wake`` is called; raises as soon as the connection is lost."""

    def wake(self) -> None:
        """End the rest of another thread, or the next one."""

    def close(self) -> None: ...


class Term:
    """The time for which a session holds the lock, won with a question sent at ``won_ns``. ``clock_ns`` goes on while
    the process is stopped."""

    def __init__(self, session: Session, won_ns: int, clock_ns: Callable[[], int]) -> None:
        self.lost_because = "the time for which it is sure is over"
        self._session = session
        self._clock_ns = clock_ns
        self._sure_until_ns = _lasts_until(won_ns)
        self._over = threading.Event()
        self._closed = trio.Event()

    @property
    def is_sure(self) -> bool:
        """The lock is ours now. Any thread may ask, any time."""
        return not self._over.is_set() and self._clock_ns() < self._sure_until_ns

    async def hold(self) -> None:
        """Until the lock cannot be relied on any more, or cancelled; then it is given back. To be called once, at
        once."""
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
                self._session.rest(_BEAT_S)
        except Unavailable as error:
            self.lost_because = str(error)
        finally:
            self._over.set()
            self._session.close()
            with suppress(trio.RunFinishedError):  # nobody waits for it any more
                token.run_sync_soon(self._closed.set)


class Election:
    """Asks for the lock. ``open_session`` blocks and raises Unavailable."""

    def __init__(self, open_session: Callable[[], Session], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._open_session = open_session
        self._clock_ns = clock_ns
        self._session: Session | None = None

    async def ask(self) -> Term | None:
        """The term that begins now; None if another one leads. Raises Unavailable; then it may be asked again."""
        return await trio.to_thread.run_sync(self._ask)

    async def aclose(self) -> None:
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


def _lasts_until(asked_ns: int) -> int:
    return asked_ns + round(SESSION_TIMEOUT_S * 1e9)
