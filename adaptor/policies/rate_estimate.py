"""The rate of arrivals on one broker and its dispersion, from bins. No clock, no numpy: brokers use it.

The engine tells when a rate has changed (``srtm._native.ChangeDetector``); what came before does not count then.
"""

from __future__ import annotations

from collections import deque

from adaptor.observations import BIN_S, Change

BINS = 50  # 5 s: a longer mean lags behind traffic that drifts, a shorter one follows noise (bench figures split-study)
_LAST_BINS = 10  # where messages wait now, how much comes now (likewise)
_DECLARED = 30  # pairs of bins that the declared dispersion counts for
_SMOOTHING = 1 / 3000  # of the dispersion, per pair of bins, in the long run: what publishers are like, not do now
_LEAST_DISPERSION = 0.1  # periodic traffic; nobody is punctual to the bin
_LEAP = 9.0  # a pair of bins adds at most so many times the dispersion: a leap of the rate says nothing about its noise


class RateEstimate:
    """``dispersion``: I, the variance of counts by their mean; 1 for Poisson traffic."""

    def __init__(self, dispersion: float = 1.0) -> None:
        self.dispersion = max(dispersion, _LEAST_DISPERSION)
        self._counts: deque[int] = deque(maxlen=BINS)  # since the last change
        self._told = (0, 0.0)  # messages, bins: since a change of which no bin is known yet
        self._mixed = 0  # bins to come that began before that change
        self._pairs = _DECLARED

    @property
    def rate(self) -> float:
        """Msg/s, in the last 5 s or since the last change."""
        messages, bins = self._told
        span = bins + len(self._counts)
        return (messages + sum(self._counts)) / span / BIN_S if span else 0.0

    @property
    def last_rate(self) -> float:
        """Msg/s, in the last second or since the last change."""
        if len(self._counts) <= _LAST_BINS:
            return self.rate
        return sum(list(self._counts)[-_LAST_BINS:]) / _LAST_BINS / BIN_S

    def add(self, arrivals: int) -> bool:
        """Take the next bin. False: it began before a change that was told, and does not count."""
        if self._mixed > 0:
            self._mixed -= 1
            return False
        if self._counts:
            self._note_dispersion(self._counts[-1], arrivals)
        self._counts.append(arrivals)
        if len(self._counts) >= self._told[1]:
            self._told = (0, 0.0)
        return True

    def begin_anew(self, change: Change) -> int:
        """The rate has changed. Returns how many of the bins that were added are of the new rate."""
        kept = min(change.known, len(self._counts))
        while len(self._counts) > kept:
            self._counts.popleft()
        self._told, self._mixed = (0, 0.0), change.mixed
        if kept * BIN_S < change.span_s:  # bins say less than the word does
            self._counts.clear()
            self._told = (change.arrivals, change.span_s / BIN_S)
        return kept

    def _note_dispersion(self, before: int, arrivals: int) -> None:
        """From the difference to the bin before, which a slow change of the rate leaves as it is."""
        if before + arrivals == 0:
            return
        seen = min((arrivals - before) ** 2 / (arrivals + before), _LEAP * self.dispersion)
        self._pairs += 1
        step = max(_SMOOTHING, 1 / self._pairs)
        self.dispersion = max(_LEAST_DISPERSION, self.dispersion + step * (seen - self.dispersion))
