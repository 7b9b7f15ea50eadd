"""A flag that any number of callers raise and one task waits for."""

from __future__ import annotations

import trio


class Wakeup:
    """``set`` it from anywhere on this loop; one task waits. Raised twice before the task runs, it wakes the task
    once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Returns when the flag is up, and lowers it."""
        await self._event.wait()
        self._event = trio.Event()
