"""How large a burst recorded traffic needs at a given rate: the smallest b with zero access delay at a percentile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from srtm.analysis.arrivals import Arrivals
from srtm.errors import BadInput
from srtm.token_bucket.burst_sizing import LONGEST_S, tokens_needed
from srtm.token_bucket.poisson import mean_delay_s, poisson_burst
from srtm.token_bucket.replay import Server
from srtm.topics.publishers import Ints
from srtm.units import from_micro, to_micro

ENOUGH_S = LONGEST_S  # of traffic: 60 s leave b = 243 +- 33 for batches of 10
TIMES_THE_LOAD = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
_LEAST = 1.001  # times the load: below that bursts grow without bound
_FEWEST = 20  # arrivals


@dataclass(frozen=True, kw_only=True)
class Size:
    """What one token rate takes."""

    rate: float  # r, msg/s
    burst: int  # b, messages
    uncertainty: float  # standard error of b, messages
    poisson_burst: int  # b of Poisson traffic with the same mean rate
    poisson_mean_ms: float  # Eq. (1): mean access delay of that traffic under (r, poisson_burst)


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """A trace, sized."""

    messages: int
    seconds: float
    load: float  # msg/s, mean
    percentile: float
    sizes: list[Size]

    @property
    def warnings(self) -> list[str]:
        if self.seconds >= ENOUGH_S:
            return []
        worst = max((size.uncertainty / size.burst for size in self.sizes), default=0.0)
        return [
            f"{self.seconds:,.0f} s of traffic are less than {ENOUGH_S:g} s: b is uncertain by about "
            f"{100 * worst:.0f} % (one standard error; slower changes of the traffic are not in it)"
        ]


def sized(arrivals: Arrivals, percentile: float, rates: Sequence[float] = ()) -> Sizing:
    """``rates``: r, msg/s; none: TIMES_THE_LOAD. Raises BadInput for too few arrivals, or a rate that is hardly more
    than their mean."""
    if len(arrivals) < _FEWEST or arrivals.seconds == 0:
        raise BadInput("trace", f"{len(arrivals)} arrivals", f"must have at least {_FEWEST}, at different times")
    load = (len(arrivals) - 1) / arrivals.seconds
    sizes = []
    for rate in rates or [load * times for times in TIMES_THE_LOAD]:
        micro = to_micro(rate, "rate")
        if from_micro(micro) < load * _LEAST:
            raise BadInput("rate", rate, f"must be at least {_LEAST:g} times the trace's mean rate, {load:,.6g} msg/s")
        sizes.append(_size(arrivals.arrival_ns, micro, load, percentile))
    return Sizing(messages=len(arrivals), seconds=arrivals.seconds, load=load, percentile=percentile, sizes=sizes)


def _size(arrival_ns: Ints, rate_micro: int, load: float, percentile: float) -> Size:
    needed = tokens_needed(*Server(rate_micro, int(arrival_ns[0])).found(arrival_ns), rate_micro)
    rate = from_micro(rate_micro)
    poisson = poisson_burst(load, rate, percentile)
    return Size(
        rate=rate,
        burst=_at(needed, percentile),
        uncertainty=_uncertainty(needed, percentile),
        poisson_burst=poisson,
        poisson_mean_ms=mean_delay_s(load, rate, poisson) * 1e3,
    )


def _uncertainty(needed: Ints, percentile: float) -> float:
    """Standard error of b.

    Messages that need b or more come in bursts, one for each of the server's busy periods: m such periods, of
    exponential sizes, tell the part of the messages to sqrt(2 / m) of itself. Work falls off exponentially, so b is off
    by that many times what it takes to e-fold the part.
    """
    burst = _at(needed, percentile)
    efold = burst - _at(needed, max(0.0, 100 - (100 - percentile) * math.e))
    period = np.cumsum(needed == 1)  # found nothing to do: a new one begins
    return efold * math.sqrt(2 / len(np.unique(period[needed >= burst])))


def _at(needed: Ints, percentile: float) -> int:
    """The smallest that ``percentile`` per cent do not exceed."""
    enough = math.ceil(len(needed) * Fraction(percentile).limit_denominator(1000) / 100)
    at = max(0, enough - 1)
    return int(np.partition(needed, at)[at])
