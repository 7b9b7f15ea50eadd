"""Numbers under which the engine knows the links of this broker, and who waits for the end of each."""

from __future__ import annotations

from collections.abc import Callable

import trio


class LinkEnd:
    """The end of one link."""

    def __init__(self, note_mark: Callable[[str], None]) -> None:
        self.note_mark = note_mark
        self._event = trio.Event()
        self._reason = ""

    @property
    def is_over(self) -> bool:
        return self._event.is_set()

    def tell(self, reason: str) -> None:
        self._reason = reason
        self._event.set()

    async def wait(self) -> str:
        """Returns why it has ended."""
        await self._event.wait()
        return self._reason


class LinkNumbers:
    def __init__(self) -> None:
        self._last = 0
        self._ends: dict[int, LinkEnd] = {}

    def take(self, note_mark: Callable[[str], None]) -> tuple[int, LinkEnd]:
        """A new number; ``note_mark`` is called for each mark that comes by its link."""
        self._last += 1
        end = self._ends[self._last] = LinkEnd(note_mark)
        return self._last, end

    def give_back(self, number: int) -> None:
        self._ends.pop(number, None)

    def note_mark(self, number: int, mark: str) -> None:
        """The engine says that a mark has come by a link."""
        if number in self._ends:
            self._ends[number].note_mark(mark)

    def note_end(self, number: int, reason: str) -> None:
        """The engine says that a link has ended."""
        if number in self._ends:
            self._ends[number].tell(reason)
