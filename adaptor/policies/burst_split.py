"""How the burst goes to brokers whose rates are given: between the least sum of delays and the least of the worst p99.

Unfinished work falls off by a factor of e every I_l lambda_l / (r_l - lambda_l) / 2 or so
(``srtm.token_bucket.fitted_split``). The sum of all delays is least where the chance to be above b_l is the same
everywhere, which is b_l - 1 in proportion to sqrt(I_l lambda_l), whatever the load. The worst broker's delay at the
percentile of the promise is least where all have the same: a busy broker then gets little burst, as its delays are
short, and many of its messages wait. Neither is good by the other's measure, so the one on the way between them is
taken that is best by both, each as a ratio. Floats only weigh here. No numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from srtm.token_bucket.fitted_split import Tail, Traffic, shares_of, tail_of
from srtm.units import from_micro

_STEPS = 4  # from one to the other
_SUM_COUNTS = 1.5  # the exponent of the sum, beside 1 of the worst delay: a change of the sum concerns all messages


def bursts(
    burst_micro: int, rates: Sequence[float], seen: Sequence[Traffic], expected: Sequence[Traffic], percentile: float
) -> list[float]:
    """Messages, in sum ``burst_micro``. ``rates``: of the shares, msg/s; ``seen``: what comes there now, each below the
    share's; ``expected``: what the rates were made for, which counts while nothing would wait anyway."""
    burst = from_micro(burst_micro)
    evenly = _alike(burst, expected)
    tails = [tail_of(one, max(rate - one.rate, 1e-9)) for one, rate in zip(seen, rates, strict=True)]
    works = [tail.exceeded_by((100 - percentile) / 100) for tail in tails]
    if _worst_delay_s(works, rates, evenly) <= 0:
        return evenly
    rate_micro = round(sum(rates) * 1e6)
    batches = [one.batch for one in seen]
    levelled = [from_micro(b) for _, b in shares_of(rate_micro, burst_micro, rates, works, batches)]
    between = [
        [(1 - step / _STEPS) * one + step / _STEPS * other for one, other in zip(evenly, levelled, strict=True)]
        for step in range(_STEPS + 1)
    ]
    return min(between, key=lambda tried: _waited(tails, tried) ** _SUM_COUNTS * _worst_delay_s(works, rates, tried))


def _alike(burst: float, expected: Sequence[Traffic]) -> list[float]:
    """One token each, and the rest by sqrt(I lambda)."""
    parts = [math.sqrt(one.dispersion * one.rate) for one in expected]
    spare = max(0.0, burst - len(parts))
    return [1 + spare * part / sum(parts) for part in parts]


def _worst_delay_s(works: Sequence[float], rates: Sequence[float], tried: Sequence[float]) -> float:
    """At the percentile, which ``works`` are of; 0 where nothing waits then."""
    return max(0.0, *((work + 1 - burst) / rate for work, rate, burst in zip(works, rates, tried, strict=True)))


def _waited(tails: Sequence[Tail], tried: Sequence[float]) -> float:
    """Messages that wait, on the average and but for a factor."""
    return sum(tail.scale * tail.chance_above(burst - 1) for tail, burst in zip(tails, tried, strict=True))
