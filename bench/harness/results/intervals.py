"""Medians with their 95 % intervals by order statistics, and percentiles. Pure.

The median of n independent values lies between the k-th smallest and the k-th largest with a probability of
1 - 2 P(Binomial(n, 1/2) < k). The largest k that keeps 95 % is taken: of 10 values the second and the ninth (97.9 %).
Fewer than 6 values cannot give 95 %: then all of them are taken, and the coverage says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

WANTED = 0.95


class Interval(msgspec.Struct, frozen=True):
    """``low`` <= ``median`` <= ``high``."""

    median: float
    low: float
    high: float

    def text(self, form: str, unit: str = "") -> str:
        """``form``: of each number."""
        return f"{self.median:{form}}{unit} ({self.low:{form}} to {self.high:{form}})"


def interval(values: Sequence[float]) -> Interval:
    """Of at least one value."""
    ordered = sorted(values)
    trimmed = _trimmed(len(ordered))
    return Interval(statistics.median(ordered), ordered[trimmed], ordered[-1 - trimmed])


def coverage(count: int) -> float:
    """The probability with which ``interval`` of so many values holds the median."""
    return _covered(count, _trimmed(count))


def _trimmed(count: int) -> int:
    """How many values at each end lie outside."""
    return max((k for k in range((count + 1) // 2) if _covered(count, k) >= WANTED), default=0)


def _covered(count: int, trimmed: int) -> float:
    outside: int = sum(math.comb(count, k) for k in range(trimmed + 1))
    return max(0.0, 1.0 - 2.0 * outside / 2.0**count)


def percentile_ms(delays_ns: NDArray[np.int64], percentile: float) -> float:
    """The smallest delay that ``percentile`` per cent of the messages do not exceed, in ms; 0 of no messages."""
    if len(delays_ns) == 0:
        return 0.0
    return float(np.percentile(delays_ns, percentile, method="inverted_cdf")) / 1e6
