"""When groups have something to tell: each at its own instant, and all once a second."""

from __future__ import annotations

import trio

from limiting.replication.node import SECOND_NS
from limiting.replication.refill import NEVER_NS


class DueGroups:
    """Instants in ns of one clock, by the tags of groups."""

    def __init__(self) -> None:
        self._due: dict[bytes, int] = {}
        self._wakes_ns = NEVER_NS
        self._sooner = trio.Event()

    def note(self, tag: bytes, at_ns: int) -> None:
        """A group is due then. Whoever waits for a later one is woken."""
        self._due[tag] = at_ns
        if at_ns < self._wakes_ns:
            self._sooner.set()

    def drop(self, tag: bytes) -> None:
        """A group has nothing to tell, or is gone."""
        self._due.pop(tag, None)

    def at(self, now_ns: int) -> list[bytes]:
        """The groups that are due."""
        return [tag for tag, due_ns in self._due.items() if due_ns <= now_ns]

    async def wait(self, at_most_ns: int, now_ns: int) -> None:
        """Wait until a group is due, until ``at_most_ns`` at the latest."""
        self._wakes_ns = min([at_most_ns, *self._due.values()])
        self._sooner = trio.Event()
        with trio.move_on_after(max(0, self._wakes_ns - now_ns) / SECOND_NS):
            await self._sooner.wait()
