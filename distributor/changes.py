"""Which topics have changed, and when: so that whoever looks again need not look at all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Changes:
    """``count`` only grows: it is what had changed at some moment."""

    def __init__(self) -> None:
        self.count = 0
        self._latest: dict[str, int] = {}  # {name: count with which it changed last}, in that order

    def note(self, names: Iterable[str]) -> None:
        for name in names:
            self.count += 1
            self._latest.pop(name, None)
            self._latest[name] = self.count

    def since(self, count: int) -> list[str]:
        """Those that have changed after that moment, latest first. Costs by their number."""
        found = []
        for name, changed in reversed(self._latest.items()):
            if changed <= count:
                break
            found.append(name)
        return found
