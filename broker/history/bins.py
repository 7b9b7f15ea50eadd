"""Bins of arrivals: as the engine returns them, and as they are kept between two reports. Pure."""

from __future__ import annotations

import msgspec


class EngineBins(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive bins of one topic, from ``first`` up to the one that is still open. All columns but ``supply`` have
    the same length."""

    topic: str
    version: int  # of the share in force
    first: int
    arrivals: list[int]
    waiting: list[int]
    unfinished: list[float]
    delay_ns: list[int]
    supply: list[tuple[int, float]]  # (first bin at whose end this rate was in force, msg/s), ascending

    def from_bin(self, first: int) -> EngineBins:
        """The bins from number ``first`` on."""
        known = first - self.first
        if known <= 0:
            return self
        return msgspec.structs.replace(
            self,
            first=first,
            arrivals=self.arrivals[known:],
            waiting=self.waiting[known:],
            unfinished=self.unfinished[known:],
            delay_ns=self.delay_ns[known:],
        )


class EngineHistories(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``Engine.histories``. Topics without messages are left out."""

    until: int  # the bin that is still open
    bin_ns: int
    wall_offset_ns: int
    topics: list[EngineBins]


class Columns:
    """Bins of one topic since its latest report, from number ``first`` on."""

    def __init__(self) -> None:
        self.first = 0
        self.arrivals: list[int] = []
        self.waiting: list[int] = []
        self.unfinished: list[float] = []
        self.delay_ns: list[int] = []
        self._supply: list[tuple[int, float]] = []  # as ``EngineBins.supply``; the last rate holds until the next

    def add(self, bins: EngineBins) -> None:
        """Append the bins that follow."""
        if not self.arrivals:
            self.first = bins.first
        self.arrivals += bins.arrivals
        self.waiting += bins.waiting
        self.unfinished += bins.unfinished
        self.delay_ns += bins.delay_ns
        for number, rate in bins.supply:
            known = self._supply[-1] if self._supply else None
            if known is None or (number > known[0] and rate != known[1]):
                self._supply.append((number, rate))

    def supply(self) -> list[tuple[int, float]]:
        """As ``TopicHistory.supply``."""
        rates = {max(number - self.first, 0): rate for number, rate in self._supply}  # the last one of each bin
        return list(rates.items()) if self.arrivals else []

    def clear(self) -> None:
        """Remove all bins; ``first`` stays. Makes new lists, because a report may hold the old ones."""
        self.arrivals, self.waiting, self.unfinished, self.delay_ns = [], [], [], []
        self._supply = self._supply[-1:]
