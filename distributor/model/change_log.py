"""The order in which named things changed last, so that a reader need not look at all of them again. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Changes:
    """``count`` only grows. A reader keeps it, and asks later for the names that have changed ``since``."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._latest: dict[str, int] = {}  # {name: count with which it changed last}, in that order

    def note(self, names: Iterable[str]) -> None:
        """These have changed now."""
        for name in names:
            self.count += 1
            self._latest.pop(name, None)
            self._latest[name] = self.count

    def step(self) -> None:
        """Count a change of something that has no name here."""
        self.count += 1

    def forget(self, name: str) -> None:
        """No reader needs to know any more that ``name`` has changed."""
        self._latest.pop(name, None)

    def since(self, count: int) -> list[str]:
        """Names that have changed after ``count``, latest first. The cost grows with their number only."""
        found = []
        for name, changed in reversed(self._latest.items()):
            if changed <= count:
                break
            found.append(name)
        return found
