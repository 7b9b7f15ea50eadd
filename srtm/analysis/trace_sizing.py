"""Sizes a bucket for recorded traffic: the smallest burst b without access delay at a percentile, for given rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from srtm.analysis.arrivals import Arrivals
from srtm.errors import BadInput
from srtm.text import figure
from srtm.token_bucket.burst_sizing import LONGEST_S, tokens_needed
from srtm.token_bucket.poisson import mean_delay_s, poisson_burst
from srtm.token_bucket.replay import Server
from srtm.topics.publishers import Ints
from srtm.units import from_micro, to_micro

ENOUGH_S = LONGEST_S  # of traffic; for comparison, 60 s give b = 243 +- 33 for batches of 10
TIMES_THE_LOAD = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
_LEAST = 1.001  # smallest rate, as a multiple of the load; below it bursts grow without limit
_FEWEST = 20  # arrivals


@dataclass(frozen=True, kw_only=True)
class Size:
    """The burst for one token rate."""

    rate: float  # r, msg/s
    burst: int  # b, messages
    uncertainty: float  # standard error of b, messages
    poisson_burst: int  # b of Poisson traffic with the same mean rate
    poisson_mean_ms: float  # Eq. (1): mean access delay of that traffic under (r, poisson_burst)


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """The sizes for a trace."""

    messages: int
    seconds: float
    load: float  # msg/s, mean
    percentile: float
    sizes: list[Size]

    @property
    def warnings(self) -> list[str]:
        """A line for people if the trace is too short."""
        if self.seconds >= ENOUGH_S:
            return []
        worst = max((size.uncertainty / size.burst for size in self.sizes), default=0.0)
        return [
            f"{self.seconds:,.0f} s of traffic are less than {ENOUGH_S:g} s: b is uncertain by about "
            f"{100 * worst:.0f} % (one standard error; slower changes of the traffic are not in it)"
        ]


def sized(arrivals: Arrivals, percentile: float, rates: Sequence[float] = ()) -> Sizing:
    """Size a bucket for ``arrivals``. ``rates``: token rates, msg/s; none: TIMES_THE_LOAD.

    Raises BadInput for fewer than 20 arrivals, or a rate below 1.001 times their mean rate.
    """
    if len(arrivals) < _FEWEST or arrivals.seconds == 0:
        raise BadInput("trace", f"{len(arrivals)} arrivals", f"must have at least {_FEWEST}, at different times")
    load = (len(arrivals) - 1) / arrivals.seconds
    sizes = []
    for rate in rates or [load * times for times in TIMES_THE_LOAD]:
        micro = to_micro(rate, "rate")
        if from_micro(micro) < load * _LEAST:
            raise BadInput(
                "rate", rate, f"must be at least {_LEAST:g} times the trace's mean rate, {figure(load, 6)} msg/s"
            )
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
    """Return the standard error of b.

    Messages that need b or more come in bursts, one for each busy period of the server. With m such periods of
    exponential sizes, the fraction of these messages has a relative error of sqrt(2 / m). The tail of the work is
    exponential, so the error of b is that times the change of b for a fraction e times as large.
    """
    burst = _at(needed, percentile)
    efold = burst - _at(needed, max(0.0, 100 - (100 - percentile) * math.e))
    period = np.cumsum(needed == 1)  # a message that finds no work begins a new period
    return efold * math.sqrt(2 / len(np.unique(period[needed >= burst])))


def _at(needed: Ints, percentile: float) -> int:
    """Return the smallest value that ``percentile`` per cent do not exceed."""
    enough = math.ceil(len(needed) * Fraction(percentile).limit_denominator(1000) / 100)
    index = max(0, enough - 1)
    return int(np.partition(needed, index)[index])
