"""Detects slow drift of traffic that was reported to be steady. Pure.

The engine's detector misses such drift, because its estimate of the rate follows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_REFERENCE_BINS = 100  # from which the reported rate is estimated
_WINDOW_BINS = 50
_SIGMAS = 4.0  # exceeded by chance in one of 16,000 windows
_MIN_CHANGE_FRACTION = 0.05  # of the rate: less makes no difference to a share


class Drift:
    """Compares windows of bins with the first bins after the report."""

    def __init__(self) -> None:
        self._reference = _Counts()
        self._window = _Counts()

    def note(self, arrivals: Sequence[int]) -> bool:
        """Add the number of messages of each of some more bins. Returns whether the rate differs from the reference."""
        if self._reference.bins < _REFERENCE_BINS:
            self._reference.add(arrivals)
            return False
        self._window.add(arrivals)
        if self._window.bins < _WINDOW_BINS:
            return False
        window, self._window = self._window, _Counts()
        difference = abs(window.mean - self._reference.mean)
        sigma = math.sqrt(self._reference.variance / self._reference.bins + window.variance / window.bins)
        return difference > _SIGMAS * sigma and difference > _MIN_CHANGE_FRACTION * self._reference.mean


class _Counts:
    """Mean and variance of messages per bin."""

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
        """At least that of Poisson traffic: few bins may show too little."""
        return max(self._squares / self.bins - self.mean**2, self.mean)
