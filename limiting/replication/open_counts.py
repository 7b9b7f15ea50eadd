"""Open requests as replicated data: one writer a slot, so a join needs no order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from srtm.errors import BadInput

OpenEntry = tuple[int, int, int]  # origin, version, open


@dataclass(slots=True)
class _Open:
    version: int
    open: int
    heard_ns: int


class OpenCounts:
    """One subject's requests that are not over, at one node. What a peer has not renewed for ``lease_ns`` is over."""

    def __init__(self, origin: int, lease_ns: int) -> None:
        self._origin = origin
        self._lease_ns = lease_ns
        self._open: dict[int, _Open] = {}

    def change(self, by: int, at_ns: int) -> OpenEntry:
        """Open or close own requests, or renew with 0. Return the slot as it is now. Raises BadInput below zero."""
        own = self._open.setdefault(self._origin, _Open(0, 0, at_ns))
        if own.open + by < 0:
            raise BadInput("release", -by, f"must not be more than the {own.open} that are open here")
        own.version, own.open, own.heard_ns = own.version + 1, own.open + by, at_ns
        return self._origin, own.version, own.open

    def join(self, entries: Iterable[OpenEntry], at_ns: int) -> None:
        """The last version of each slot wins."""
        for origin, version, count in entries:
            known = self._open.get(origin)
            if known is None or version > known.version:
                self._open[origin] = _Open(version, count, at_ns)

    def total(self, at_ns: int) -> int:
        """Open requests of all nodes at ``at_ns``."""
        return sum(
            slot.open
            for origin, slot in self._open.items()
            if origin == self._origin or at_ns - slot.heard_ns < self._lease_ns
        )
