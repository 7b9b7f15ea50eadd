"""The split that leaves every broker equally well off: what arrives there, what waits there, and a part of the rest.

It is where exchanges of tokens in pairs end (``adaptor.gdrl.exchange``, indicator "slack"), in closed form. Demand is
the rate of arrivals and what waits, which is to be gone in a second. The slack, r less all demand, goes by the square
root of rate times dispersion, as noise does; the burst likewise. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from adaptor.observations import Envelope, Shares
from adaptor.policies.bounds import Limits, shares_within
from srtm.units import from_micro

DRAINED_S = 1.0  # what waits is to be gone in that time
LEAST_DEMAND = 0.02  # of the mean share: a broker without traffic keeps enough to begin with


class Demand(NamedTuple):
    """Of one broker."""

    rate: float  # of arrivals, msg/s
    waiting: int  # messages, for tokens
    dispersion: float


def even_split(envelope: Envelope, bounds: Limits, demands: Sequence[Demand]) -> Shares:
    """Shares in the order of ``demands``, within ``bounds``."""
    rate = from_micro(envelope.rate_micro)
    wanted = [one.rate + one.waiting / DRAINED_S for one in demands]
    least = LEAST_DEMAND * rate / len(demands)
    noise = [math.sqrt(one.dispersion * max(each, least)) for one, each in zip(demands, wanted, strict=True)]
    slack = rate - sum(wanted)
    if slack > 0:
        rates = [each + slack * part / sum(noise) for each, part in zip(wanted, noise, strict=True)]
    else:
        rates = _drained(rate, demands)
    return shares_within(envelope, bounds, rates, noise)


def _drained(rate: float, demands: Sequence[Demand]) -> list[float]:
    """Where ``rate`` is too little to drain all in time: what arrives first, then by what waits."""
    slack, waiting = rate - sum(one.rate for one in demands), sum(one.waiting for one in demands)
    if slack > 0 and waiting:
        return [one.rate + slack * one.waiting / waiting for one in demands]
    return [one.rate + one.waiting / DRAINED_S for one in demands]
