"""What the distributor does not know yet of reports by key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Differences(Generic[K, V]):
    """Note what is so now, send what is ``unsent``, then say whether it was ``answered``; one request at a time.

    ``nothing``: what is told of a key that is noted no more; None: the distributor keeps what it knows.
    """

    def __init__(self, nothing: V | None = None) -> None:
        self._nothing = nothing
        self.known: dict[K, V] = {}  # to the distributor
        self.unsent: dict[K, V] = {}  # in each request until one is answered

    def note(self, now: Mapping[K, V]) -> None:
        """All that is so now."""
        self.unsent = {key: value for key, value in now.items() if self.known.get(key) != value}
        if self._nothing is not None:
            self.unsent.update(dict.fromkeys(self.known.keys() - now.keys(), self._nothing))
        else:
            self.known = {key: value for key, value in self.known.items() if key in now}

    def answered(self) -> None:
        """The latest request was answered: the distributor has what was ``unsent``."""
        self.known.update(self.unsent)
        if self._nothing is not None:
            self.known = {key: value for key, value in self.known.items() if value != self._nothing}
        self.unsent = {}

    def send_again(self) -> None:
        """The distributor lacks what was reported."""
        self.known.clear()
