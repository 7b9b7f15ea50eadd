"""Watches the drain of a broker and reports its progress."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from srtm.control import DrainProgress
from srtm.errors import PeerError, Unavailable
from srtm.text import figure

_POLL_S = 0.2  # a drained broker stays for longer than this, so that its last state is seen
_REPORT_S = 1.0


def describe(progress: DrainProgress) -> str:
    """Return one line on what the broker still has to deliver, and what prevents it."""
    left = progress.left
    line = f"{progress.broker}: {left.total:,} messages left" if left.total else f"{progress.broker}: no messages left"
    counts = (left.queued, left.in_flight, left.deferred, left.waiting)
    parts = zip(counts, ("queued", "in flight", "deferred", "waiting for tokens"), strict=True)
    shown = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    return line + (f" ({shown})" if shown else "") + "".join(f"; {obstacle}" for obstacle in progress.obstacles)


class ProgressLines:
    """Passes lines on if they changed, at most one a second."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._last = ""
        self._next_s = -1.0

    def note(self, line: str) -> None:
        """Pass ``line`` on, or drop it."""
        if line != self._last and trio.current_time() >= self._next_s:
            self._tell(line)
            self._last, self._next_s = line, trio.current_time() + _REPORT_S


async def watch(look: Callable[[], Awaitable[DrainProgress]], timeout_s: float, tell: Callable[[str], object]) -> None:
    """Wait until a broker is drained; ``look`` asks for its progress, ``tell`` receives lines for people.

    Raises Unavailable if it is not drained after ``timeout_s`` (it drains on), PeerError if it ended before.
    """
    lines, last = ProgressLines(tell), None
    with trio.move_on_after(timeout_s):
        while True:
            try:
                last = await look()
            except Unavailable as error:
                raise PeerError(f"it ended before it was drained: {last and describe(last)} ({error})") from error
            if last.state == "drained":
                return
            lines.note(describe(last))
            await trio.sleep(_POLL_S)
    left = "it has not answered" if last is None else describe(last)
    raise Unavailable(f"not drained within {figure(timeout_s, 6)} s, and draining on: {left}")
