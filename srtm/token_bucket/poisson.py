"""What theory says of Poisson traffic under a token bucket (section 2.1 of the main paper): Eq. (1).

The r-server is M/D/1. Its unfinished work U, in tokens, lies in (N - 1, N] while N messages are there, so P(U > b - 1)
for a whole b is P(N >= b). N's distribution follows from the balance across each cut between n and n + 1 at departures:
every term is positive, so nothing cancels.
"""

from __future__ import annotations

import math

import numpy as np

_TERMS = 400  # arrivals in one service time: Poisson with a mean below 1, of which nothing is left long before


def delayed_part(ratio: float, burst: int) -> float:
    """P(U > b - 1): the part of the messages that wait, for lambda / r = ``ratio`` < 1 and a whole ``burst`` >= 1."""
    return max(0.0, 1.0 - float(np.sum(_occupancy(ratio, burst))))


def mean_delay_s(load: float, rate: float, burst: int) -> float:
    """Eq. (1): the mean access delay at ``load`` < ``rate``, msg/s."""
    return delayed_part(load / rate, burst) / (2 * rate * (1 - load / rate))


def exact_mean_delay_s(load: float, rate: float, burst: int) -> float:
    """The mean access delay that Eq. (1) is some per cent above for 1 < b, at ``load`` < ``rate``, msg/s, and a whole
    ``burst`` >= 1: E[(U - (b - 1))+] / r.

    With g(x) = E[(U - x)+], and rho (P(U > x - 1) - P(U > x)) the density of U at x (what jumps over x comes down
    through it), g(x) = g(x - 1) - P(U > x) / rho; g(0) is M/D/1's mean work."""
    ratio = load / rate
    above = 1.0 - np.cumsum(_occupancy(ratio, burst))  # [n]: P(U > n)
    return (ratio / (2 * (1 - ratio)) - float(np.sum(above[1:])) / ratio) / rate


def poisson_burst(load: float, rate: float, percentile: float) -> int:
    """The smallest whole b that leaves at most 100 - ``percentile`` per cent of the messages waiting."""
    allowed, most = 1 - percentile / 100, 64
    while True:
        waiting = 1.0 - np.cumsum(_occupancy(load / rate, most))  # [n]: P(N > n)
        enough = np.flatnonzero(waiting <= allowed)
        if len(enough):
            return int(enough[0]) + 1
        most *= 4


def _occupancy(ratio: float, states: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """P(N = n) for n below ``states``."""
    arrivals = np.array([math.exp(n * math.log(ratio) - ratio - math.lgamma(n + 1)) for n in range(_TERMS)])
    more = np.append(np.cumsum(arrivals[::-1])[::-1][1:], 0.0)  # [m]: P(A > m)
    chance = np.zeros(states)
    chance[0] = 1 - ratio
    for n in range(states - 1):
        first = max(1, n + 2 - _TERMS)
        up = chance[0] * (more[n] if n < _TERMS else 0.0) + chance[first : n + 1] @ more[n + 1 - first : 0 : -1]
        chance[n + 1] = up / arrivals[0]
    return chance
