"""The split that leaves every broker equally well off: what arrives there, what waits there, and a part of the rest.

It is where exchanges of tokens in pairs end (``adaptor.gdrl.exchange``, indicator "slack"), in closed form. Demand is
the rate of arrivals and what waits, which is to be gone in a second. The slack, r less all demand, goes by the square
root of rate times dispersion, as noise does; the burst likewise. A broker without traffic keeps its floor. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from adaptor.observations import Envelope, Shares
from adaptor.policies.bounds import Limits, shares_within
from srtm.units import from_micro

DRAINED_S = 1.0  # what waits is to be gone in that time


class Demand(NamedTuple):
    """Of one broker."""

    rate: float  # of arrivals, msg/s
    waiting: int  # messages, for tokens
    dispersion: float

    @property
    def wanted(self) -> float:
        """Msg/s: what arrives, and what lets all that waits go within ``DRAINED_S``."""
        return self.rate + self.waiting / DRAINED_S


def even_split(envelope: Envelope, bounds: Limits, demands: Sequence[Demand]) -> Shares:
    """Shares in the order of ``demands``, within ``bounds``."""
    rate = from_micro(envelope.rate_micro)
    wanted = [one.wanted for one in demands]
    noise = [math.sqrt(one.dispersion * each) for one, each in zip(demands, wanted, strict=True)]
    slack = rate - sum(wanted)
    if slack > 0 and any(noise):
        rates = [each + slack * part / sum(noise) for each, part in zip(wanted, noise, strict=True)]
    else:
        rates = _drained(rate, demands)
    return shares_within(envelope, bounds, rates, noise)


def _drained(rate: float, demands: Sequence[Demand]) -> list[float]:
    """Where ``rate`` is too little to drain all in time: what arrives first, then by what waits."""
    slack, waiting = rate - sum(one.rate for one in demands), sum(one.waiting for one in demands)
    if slack > 0 and waiting:
        return [one.rate + slack * one.waiting / waiting for one in demands]
    return [one.wanted for one in demands]
