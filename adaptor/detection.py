"""The rate of arrivals on one broker from its bins, told apart from what it was before it changed. No clock, no numpy.

A change is where the mean of the last w bins differs from that of the bins before by more than chance allows: with
counts of mean m and index of dispersion I, the difference of two means over w and n bins has the variance
I m (1 / w + 1 / n). Several w are tried, so that a leap shows in the first bin and a drift after a while.
"""

from __future__ import annotations

import math
from collections import deque

from adaptor.observed import BIN_S

_LONGEST = 100  # bins, the paper's window
_WINDOWS = (1, 2, 3, 5, 8, 13, 21, 34, 50)
_SIGMAS = 5.0  # one false alarm in weeks, for Poisson counts and ten bins a second
_SMOOTHING = (
    1 / 3000
)  # of the dispersion, per pair of bins, in the long run: it is what publishers are like, not what they do now
_DECLARED = 30  # pairs of bins that the declared dispersion counts for
_LEAST_KEPT = 2  # bins, for a change that is told late
_LEAST_DISPERSION = 0.1  # periodic traffic; nobody is punctual to the bin


class RateEstimate:
    """``rate`` in msg/s, since the last change that was detected; ``dispersion``: I, 1 for Poisson."""

    def __init__(self, dispersion: float = 1.0) -> None:
        self.dispersion = max(dispersion, _LEAST_DISPERSION)
        self._counts: deque[int] = deque(maxlen=_LONGEST)  # since the last change
        self._is_cut = False  # the first of them may be half of the old kind
        self._pairs = _DECLARED
        self._since = (0, 0.0)  # messages, bins: told of a change before there were bins after it
        self._mixed = 0  # bins to come that are part of the old kind

    @property
    def bins(self) -> int:
        """How many the rate is the mean of."""
        return len(self._counts)

    @property
    def rate(self) -> float:
        arrivals, bins = self._seen()
        return arrivals / bins / BIN_S if bins else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of ``rate``, msg/s; of no message that of one."""
        arrivals, bins = self._seen()
        return math.sqrt(self.dispersion * max(arrivals, 1)) / (bins or 1) / BIN_S

    def begin_anew(self, arrivals: int, span_s: float, mixed: int, known: int = 0) -> None:
        """The rate has changed: so many messages came in the ``span_s`` since. ``mixed`` bins to come began before;
        ``known`` bins that were added began after. Where these say more than ``span_s`` they are what is known."""
        kept = min(known, len(self._counts))
        self._is_cut = False
        if kept >= _LEAST_KEPT and kept * BIN_S >= span_s:
            self._since, self._mixed = (0, 0.0), 0
            while len(self._counts) > kept:
                self._counts.popleft()
            return
        self._counts.clear()
        self._since, self._mixed = (arrivals, span_s / BIN_S), mixed

    def is_mixed(self) -> bool:
        """Of the next bin, asked once: whether it began before a change that is known already."""
        self._mixed -= 1
        return self._mixed >= 0

    def add(self, arrivals: int) -> bool:
        """Of the next bin. True: a change is detected, and what came before it is forgotten."""
        self._note_dispersion(arrivals)
        self._counts.append(arrivals)
        if len(self._counts) >= self._since[1]:
            self._since = (0, 0.0)
        since = self._changed_since()
        if since:
            kept = list(self._counts)[-since:]
            self._counts.clear()
            self._counts.extend(kept)
            self._is_cut = True
        elif self._is_cut and len(self._counts) > 2:
            self._counts.popleft()
            self._is_cut = False
        return since > 0

    def _seen(self) -> tuple[int, float]:
        arrivals, bins = self._since
        return arrivals + sum(self._counts), bins + len(self._counts)

    def _changed_since(self) -> int:
        """How many of the last bins differ most clearly from those before; 0: none do."""
        counts, total = self._counts, sum(self._counts)
        best, since, recent, at = _SIGMAS, 0, 0, len(counts)
        for window in _WINDOWS:
            if window >= len(counts):
                break
            while at > len(counts) - window:
                at -= 1
                recent += counts[at]
            before = len(counts) - window
            difference = abs(recent / window - (total - recent) / before)
            mean = max(total / len(counts), 1.0)
            sigmas = difference / math.sqrt(self.dispersion * mean * (1 / window + 1 / before))
            if sigmas > best:
                best, since = sigmas, window
        return since

    def _note_dispersion(self, arrivals: int) -> None:
        """From the difference to the bin before, which a slow change of the rate leaves as it is."""
        if not self._counts or self._counts[-1] + arrivals == 0:
            return
        before = self._counts[-1]
        seen = (arrivals - before) ** 2 / (arrivals + before)
        seen = min(seen, 9 * self.dispersion)  # a leap of the rate says nothing about its noise
        self._pairs += 1
        step = max(_SMOOTHING, 1 / self._pairs)
        self.dispersion = max(_LEAST_DISPERSION, self.dispersion + step * (seen - self.dispersion))
