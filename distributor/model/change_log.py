"""Which topics have changed, and when: so that whoever looks again need not look at all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Changes:
    """``count`` only grows: it is what had changed at some moment."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._latest: dict[str, int] = {}  # {name: count with which it changed last}, in that order

    def note(self, names: Iterable[str]) -> None:
        for name in names:
            self.count += 1
            self._latest.pop(name, None)
            self._latest[name] = self.count

    def step(self) -> None:
        """Something has changed that is known elsewhere."""
        self.count += 1

    def forget(self, name: str) -> None:
        """Nobody needs to know any more that ``name`` has changed."""
        self._latest.pop(name, None)

    def since(self, count: int) -> list[str]:
        """Those that have changed after that moment, latest first. Costs by their number."""
        found = []
        for name, changed in reversed(self._latest.items()):
            if changed <= count:
                break
            found.append(name)
        return found
