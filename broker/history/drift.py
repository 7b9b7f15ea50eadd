"""Whether traffic that was told to be steady has drifted since: too slowly for the engine, whose idea of the rate goes
along. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TOLD_BINS = 100  # by which the rate that was told is known
_WINDOW_BINS = 50
_SIGMAS = 4.0  # in one of 16,000 windows by chance
_LEAST = 0.05  # part of the rate: less makes no difference to a share


class Drift:
    """From the moment on at which the rate was told."""

    def __init__(self) -> None:
        self._told = _Counts()
        self._window = _Counts()

    def note(self, arrivals: Sequence[int]) -> bool:
        """Messages in each of some more bins. True: the rate is another than in the first bins."""
        if self._told.bins < _TOLD_BINS:
            self._told.add(arrivals)
            return False
        self._window.add(arrivals)
        if self._window.bins < _WINDOW_BINS:
            return False
        window, self._window = self._window, _Counts()
        apart = abs(window.mean - self._told.mean)
        sigma = math.sqrt(self._told.variance / self._told.bins + window.variance / window.bins)
        return apart > _SIGMAS * sigma and apart > _LEAST * self._told.mean


class _Counts:
    def __init__(self) -> None:
        self.bins = 0
        self._sum = self._squares = 0

    def add(self, counts: Sequence[int]) -> None:
        self.bins += len(counts)
        self._sum += sum(counts)
        self._squares += sum(count * count for count in counts)

    @property
    def mean(self) -> float:
        return self._sum / self.bins

    @property
    def variance(self) -> float:
        """Of a bin; not below that of single messages at random, of which few bins may show too little."""
        return max(self._squares / self.bins - self.mean**2, self.mean)
