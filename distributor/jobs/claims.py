"""Which fitting has which broker for itself: measurements of two on one broker would each see the other's moves."""

from __future__ import annotations

from collections.abc import Collection

import trio


class Claims:
    """By name of topic. What is claimed stays so until ``release``."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}  # {broker: topic}
        self.released = trio.Event()  # set, and replaced, whenever something is

    def held_by_others(self, topic: str) -> set[str]:
        return {broker for broker, owner in self._of.items() if owner != topic}

    def take(self, topic: str, brokers: Collection[str]) -> set[str]:
        """All of them, or none and those that others have."""
        taken = self.held_by_others(topic) & set(brokers)
        if not taken:
            self._of.update(dict.fromkeys(brokers, topic))
        return taken

    def release(self, topic: str) -> None:
        self._of = {broker: owner for broker, owner in self._of.items() if owner != topic}
        self.released.set()
        self.released = trio.Event()
