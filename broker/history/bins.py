"""Bins of topics as the engine tells them, and as they are kept between two reports. Pure."""

from __future__ import annotations

import msgspec


class EngineBins(msgspec.Struct, frozen=True, kw_only=True):
    """Bins of one topic, ``first`` and those that follow it, up to the one that is not over. Columns of equal length,
    but for ``supply``."""

    topic: str
    version: int  # of the share in force
    first: int
    arrivals: list[int]
    waiting: list[int]
    unfinished: list[float]
    delay_ns: list[int]
    supply: list[tuple[int, float]]  # (number of the first bin at whose end it was in force, msg/s), ascending

    def from_bin(self, first: int) -> EngineBins:
        """Without those before ``first``."""
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
    """What ``Engine.histories`` gives: topics to which nothing was are left out. ``until``: the first bin that is not
    over."""

    until: int
    bin_ns: int
    wall_offset_ns: int
    topics: list[EngineBins]


class Columns:
    """Bins of one topic since its last report, from number ``first`` on."""

    def __init__(self) -> None:
        self.first = 0
        self.arrivals: list[int] = []
        self.waiting: list[int] = []
        self.unfinished: list[float] = []
        self.delay_ns: list[int] = []
        self._supply: list[tuple[int, float]] = []  # as ``EngineBins.supply``; the last one holds until another comes

    def add(self, bins: EngineBins) -> None:
        """Those that follow."""
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
        told = {max(number - self.first, 0): rate for number, rate in self._supply}  # of one bin's the last
        return list(told.items()) if self.arrivals else []

    def drop(self, count: int) -> None:
        """The first so many."""
        self.first += count
        for column in (self.arrivals, self.waiting, self.unfinished, self.delay_ns):
            del column[:count]
        while len(self._supply) > 1 and self._supply[1][0] <= self.first:
            del self._supply[0]

    def clear(self) -> None:
        """All of them; ``first`` stays. Lists that were given out stay as they are."""
        self.arrivals, self.waiting, self.unfinished, self.delay_ns = [], [], [], []
        self._supply = self._supply[-1:]
