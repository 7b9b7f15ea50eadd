"""Whether a rate of arrivals is still what it was: CUSUM of likelihood ratios on counts in short bins. Pure.

Each side of a test is a sum of log-likelihood ratios between Poisson counts of the rate so far and of one that is a
tenth or a half larger (or smaller), kept above zero; a change is said when a sum passes ``threshold``. Before any
change that takes e^threshold bins on average at least, whatever the rate (Lorden, "Procedures for reacting to a change
in distribution", 1971). Messages that come in batches are counted by the batch: counts are divided by their index of
dispersion, estimated beside the rate.
"""

from __future__ import annotations

import math

_RATIOS = (1.5, 1.1, 1 / 1.1, 1 / 1.5)  # of a changed rate to that before
_TESTS = tuple((math.log(ratio), ratio - 1) for ratio in _RATIOS)
_SLOWEST = 100  # bins over which rate and dispersion are averaged, once there were so many
_LEARNING = 10  # bins after a change until which the new rate is only looked at
_LEAST = 0.1  # messages a bin: from nothing, every rate is infinitely more
_OUTLIER = 9.0  # of one bin's share in the index of dispersion, in multiples of it


class ChangeDetector:
    """Of one stream. ``threshold``: 16 is a false alarm in e^16 bins of each of four tests, were rate and dispersion
    known: 2.5 days of bins of 100 ms. (Estimated, they cost up to one in some hours where batches are large.)"""

    def __init__(self, threshold: float = 16.0) -> None:
        self._threshold = threshold
        self._rate = 0.0  # messages a bin
        self._dispersion = 1.0
        self._bins = 0  # that they are estimated from
        self._sums = [0.0] * len(_RATIOS)

    @property
    def is_settled(self) -> bool:
        """The rate is known well enough for a change to be seen."""
        return self._bins >= _LEARNING

    def note(self, count: int) -> bool:
        """Messages of the next bin. True: the rate is no longer what it was."""
        if self.is_settled and self._differs(count):
            self._begin_anew(count)
            return True
        self._learn(count)
        return False

    def _differs(self, count: int) -> bool:
        counted, rate = count / self._dispersion, self._rate / self._dispersion
        risen = max(self._rate, _LEAST) / self._dispersion
        sums = self._sums = [
            max(0.0, so_far + counted * log - (risen if growth > 0 else rate) * growth)
            for so_far, (log, growth) in zip(self._sums, _TESTS, strict=True)
        ]
        return max(sums) > self._threshold

    def _learn(self, count: int) -> None:
        self._bins += 1
        weight = 1 / min(self._bins, _SLOWEST)
        before = max(self._rate, _LEAST)
        self._rate += weight * (count - self._rate)
        if self.is_settled:
            spread = min((count - before) ** 2 / before, _OUTLIER * self._dispersion)
            self._dispersion = max(1.0, self._dispersion + weight * (spread - self._dispersion))

    def _begin_anew(self, count: int) -> None:
        """Batches stay what they are; the rate is that of the bins from here on."""
        self._rate, self._bins = float(count), 1
        self._sums = [0.0] * len(_RATIOS)
