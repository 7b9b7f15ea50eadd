"""Counts of windows and of open requests as replicated data: one writer a slot, so a join needs no order.

A window's slot is (slice, origin): its count only grows, and the larger of two is the newer. The slice is part of the
slot, so counts of a finished window are never counted again. Slices are numbered by the wall clock: clocks that differ
by some ms misplace what comes within these ms of a slice's edge, and nothing else (law L6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from srtm.errors import BadInput

WindowEntry = tuple[int, int, int]  # slice, origin, count
OpenEntry = tuple[int, int, int]  # origin, version, open


class WindowCounts:
    """One subject's requests by slice, at one node. ``slice_ns``: the length of a slice; ``slices``: of a window."""

    def __init__(self, origin: int, slice_ns: int, slices: int) -> None:
        if slice_ns < 1 or slices < 1:
            raise BadInput("slices", slices, "a window must have at least one slice of at least 1 ns")
        self._origin = origin
        self._slice_ns = slice_ns
        self._slices = slices
        self._counts: dict[int, dict[int, int]] = {}  # {slice: {origin: count}}

    def add(self, count: int, wall_ns: int) -> WindowEntry:
        """Count own requests. Return the slot as it is now, for the peers."""
        number = wall_ns // self._slice_ns
        own = self._counts.setdefault(number, {})
        own[self._origin] = own.get(self._origin, 0) + count
        self._forget(number)
        return number, self._origin, own[self._origin]

    def join(self, entries: Iterable[WindowEntry], wall_ns: int) -> None:
        """Take the larger of each slot's counts."""
        for number, origin, count in entries:
            slots = self._counts.setdefault(number, {})
            slots[origin] = max(slots.get(origin, 0), count)
        self._forget(wall_ns // self._slice_ns)

    def entries(self) -> set[WindowEntry]:
        """All slots, for a snapshot."""
        return {(number, origin, count) for number, own in self._counts.items() for origin, count in own.items()}

    def total(self, wall_ns: int, *, weighted: bool) -> float:
        """Requests in the window that ends at ``wall_ns``. ``weighted``: the slice that leaves it counts in part."""
        last, into_ns = divmod(wall_ns, self._slice_ns)
        whole = sum(sum(self._counts.get(number, {}).values()) for number in range(last - self._slices + 1, last + 1))
        if not weighted:
            return whole
        leaving = sum(self._counts.get(last - self._slices, {}).values())
        return whole + leaving * (1 - into_ns / self._slice_ns)

    def _forget(self, last: int) -> None:
        for number in [number for number in self._counts if number < last - self._slices]:
            del self._counts[number]


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
