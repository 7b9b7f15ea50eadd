"""The theory of Poisson traffic at a token bucket: Eq. (1), section 2.1 of the main paper.

The r-server is M/D/1. While it has N messages, its unfinished work U, in tokens, is in (N - 1, N]. So P(U > b - 1) is
P(N >= b) for a whole b. The distribution of N follows from the balance between n and n + 1 at departures. All terms
are positive, so no precision is lost.
"""

from __future__ import annotations

import math

import numpy as np

_TERMS = 400  # arrivals in one service time are Poisson with a mean below 1: further terms are 0


def delayed_part(ratio: float, burst: int) -> float:
    """Return P(U > b - 1), the fraction of messages that wait, for lambda / r = ``ratio`` < 1 and ``burst`` >= 1."""
    return max(0.0, 1.0 - float(np.sum(_occupancy(ratio, burst))))


def mean_delay_s(load: float, rate: float, burst: int) -> float:
    """Return the mean access delay by Eq. (1), s, for ``load`` < ``rate``, msg/s."""
    return delayed_part(load / rate, burst) / (2 * rate * (1 - load / rate))


def exact_mean_delay_s(load: float, rate: float, burst: int) -> float:
    """Return the exact mean access delay E[(U - (b - 1))+] / r, s, for ``load`` < ``rate``, msg/s, and ``burst`` >= 1.

    Eq. (1) is a few per cent larger if b > 1. Let g(x) = E[(U - x)+]. The density of U at x is
    rho (P(U > x - 1) - P(U > x)), because work that jumps over x comes down through it. So
    g(x) = g(x - 1) - P(U > x) / rho, and g(0) is the mean work of M/D/1.
    """
    ratio = load / rate
    above = 1.0 - np.cumsum(_occupancy(ratio, burst))  # [n]: P(U > n)
    return (ratio / (2 * (1 - ratio)) - float(np.sum(above[1:])) / ratio) / rate


def poisson_burst(load: float, rate: float, percentile: float) -> int:
    """Return the smallest whole b with which at most 100 - ``percentile`` per cent of the messages wait."""
    allowed, most = 1 - percentile / 100, 64
    while True:
        waiting = 1.0 - np.cumsum(_occupancy(load / rate, most))  # [n]: P(N > n)
        enough = np.flatnonzero(waiting <= allowed)
        if len(enough):
            return int(enough[0]) + 1
        most *= 4


def _occupancy(ratio: float, states: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return P(N = n) for n below ``states``."""
    arrivals = np.array([math.exp(n * math.log(ratio) - ratio - math.lgamma(n + 1)) for n in range(_TERMS)])
    more = np.append(np.cumsum(arrivals[::-1])[::-1][1:], 0.0)  # [m]: P(A > m)
    chance = np.zeros(states)
    chance[0] = 1 - ratio
    for n in range(states - 1):
        first = max(1, n + 2 - _TERMS)
        up = chance[0] * (more[n] if n < _TERMS else 0.0) + chance[first : n + 1] @ more[n + 1 - first : 0 : -1]
        chance[n + 1] = up / arrivals[0]
    return chance
