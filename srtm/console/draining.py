"""Watching a broker drain. What happens to its messages is its own affair."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from srtm.control import DrainProgress
from srtm.errors import PeerError, Unavailable

_LOOK_S = 0.2  # shorter than a drained broker lingers, so that its last word is not missed
_TELL_S = 1.0


def describe(progress: DrainProgress) -> str:
    left = progress.left
    line = f"{progress.broker}: {left.total:,} messages left" if left.total else f"{progress.broker}: no messages left"
    counts = (left.queued, left.in_flight, left.deferred, left.waiting)
    parts = zip(counts, ("queued", "in flight", "deferred", "waiting for tokens"), strict=True)
    shown = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    return line + (f" ({shown})" if shown else "") + "".join(f"; {one}" for one in progress.obstacles)


class Teller:
    """Passes on what is new, at most once in ``_TELL_S``."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._last = ""
        self._next_s = -1.0

    def note(self, line: str) -> None:
        if line != self._last and trio.current_time() >= self._next_s:
            self._tell(line)
            self._last, self._next_s = line, trio.current_time() + _TELL_S


async def watch(look: Callable[[], Awaitable[DrainProgress]], timeout_s: float, tell: Callable[[str], object]) -> None:
    """Until it is drained. Raises Unavailable: it is not after ``timeout_s`` (and goes on), or it ended before."""
    teller, last = Teller(tell), None
    with trio.move_on_after(timeout_s):
        while True:
            try:
                last = await look()
            except Unavailable as error:
                raise PeerError(f"it ended before it was drained: {last and describe(last)} ({error})") from error
            if last.state == "drained":
                return
            teller.note(describe(last))
            await trio.sleep(_LOOK_S)
    left = "it has not answered" if last is None else describe(last)
    raise Unavailable(f"not drained within {timeout_s:g} s, and draining on: {left}")
