"""The Wilson score interval: what a probability may be, after so many successes in so many independent trials.

Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). Unlike the normal
approximation it also holds near 0 and 1.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """Probabilities, from 0 to 1."""

    low: float
    high: float


def wilson_interval(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Return the interval that covers the probability in ``level`` of all cases. Without trials it is (0, 1)."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    part, weight = successes / trials, z * z / trials
    centre = (part + weight / 2) / (1 + weight)
    half = z * math.sqrt(part * (1 - part) / trials + weight / (4 * trials)) / (1 + weight)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(low, high)


def fewest_successes(trials: int, probability: float, level: float = 0.95) -> int | None:
    """Return the fewest successes whose lower bound is at least ``probability``. None: even all are too few."""
    if wilson_interval(trials, trials, level).low < probability:
        return None
    least, most = 0, trials
    while least < most:
        middle = (least + most) // 2
        if wilson_interval(middle, trials, level).low >= probability:
            most = middle
        else:
            least = middle + 1
    return least
