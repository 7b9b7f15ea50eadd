"""Splits a bucket by the traffic of its brokers: small brokers get more than their proportion.

Let a server of rate r_l get firings of I_l messages as a Poisson process of lambda_l messages a second. Its unfinished
work U exceeds x with a probability of about C exp(-t x / I_l), where q (e^t - 1) = t, C = (1 - q) / (q e^t - 1) and
q = lambda_l / r_l (the Cramer-Lundberg approximation; Asmussen, "Applied Probability and Queues", XIII 5). About
(I_l - 1) / 2 messages of its own firing are ahead of a message. The message waits longer than d if U + 1 plus these
minus b_l exceeds r_l d (appendix A, Eq. 2). So a fraction p of the messages waits longer than d on every broker if

    b_l = 1 + (I_l - 1) / 2 + I_l ln(C / p) / t - r_l d

These sum to b for one d. In heavy traffic C is 1, and 1 / t is lambda_l / (r_l - lambda_l) / 2. Then d is smallest if
the slack, r minus all lambda_l, is divided in proportion to sqrt(I_l lambda_l). The next term,
I_l (ln(1 / p) - 1) / 3, hardly depends on r_l. Floats only set the weights; ``srtm.token_bucket.exact_split`` keeps the
sums exact. The module does without numpy, because brokers use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from srtm.token_bucket.exact_split import split, split_bucket
from srtm.units import MICRO, from_micro

Shares = list[tuple[int, int]]  # (r_l, b_l), micro-messages/s and micro-messages

_HALVINGS = 200  # bisection ends earlier, when floats cannot tell the ends apart
_STEPS = 6  # Newton's steps; more do not change the result
_LEAST_LOAD = 1e-9  # below it the work is practically none
_LEAST_IDLE = 1e-9  # below it floats cannot represent the tail


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The traffic of a topic on one broker."""

    rate: float  # lambda_l, msg/s
    dispersion: float = 1.0  # I_l: messages per firing, averaged over messages, for Poisson firings
    batch: int = 1  # the most messages that one publisher sends at once


@dataclass(frozen=True, slots=True)
class Tail:
    """The tail of the work that a message finds, including messages ahead of it in its own firing, in messages.

    The probability of more than ``shift`` is about 1. Beyond it falls by a factor of e for each ``scale``.
    """

    scale: float
    shift: float

    def exceeded_by(self, chance: float) -> float:
        """Return the work that is exceeded with the probability ``chance``, messages."""
        return max(0.0, self.shift - self.scale * math.log(chance))

    def chance_above(self, work: float) -> float:
        """Return the probability of more than ``work`` messages."""
        return math.exp(-max(0.0, work - self.shift) / self.scale)


def tail_of(traffic: Traffic, margin: float) -> Tail:
    """Return the tail of a broker's work. ``margin``: the rate of its share minus the traffic's rate, msg/s, > 0."""
    load = min(1 - _LEAST_IDLE, traffic.rate / (traffic.rate + margin))
    idle = max(_LEAST_IDLE, margin / (traffic.rate + margin))
    decay = _decay(max(load, _LEAST_LOAD), idle)
    first = math.log(idle / (decay - idle)) / decay
    own = max(0.0, traffic.dispersion - 1) / 2
    return Tail(scale=traffic.dispersion / decay, shift=own + traffic.dispersion * first)


def _decay(load: float, idle: float) -> float:
    """Return t > 0 with load (e^t - 1) = t. ``idle``: 1 - load, given apart to be exact.

    Newton's method on the concave ln(1 + t / load) - t, from beyond its top, converges to the root from above.
    """
    found = 6 * idle / (2 + load)  # the root to the second order of idle
    for _ in range(_STEPS):
        found -= (math.log1p(found / load) - found) / (1 / (load + found) - 1)
    return found


def fitted_bucket(rate_micro: int, burst_micro: int, traffic: Sequence[Traffic], percentile: float = 99.0) -> Shares:
    """Split a bucket into shares (r_l, b_l), micro-messages, with equal delays at ``percentile``. The sums are exact.

    The share of rate 0 is (0, 0). Every other share holds at least one token, and its largest batch if the burst
    suffices. Without slack the result is that of ``split_bucket``. Raises BadInput as that does.
    """
    proportional = split_bucket(rate_micro, burst_micro, [broker.rate for broker in traffic])
    slack = from_micro(rate_micro) - sum(broker.rate for broker in traffic)
    if slack <= 0 or sum(broker.rate > 0 for broker in traffic) == 1:
        return proportional
    spread = [math.sqrt(broker.dispersion * broker.rate) for broker in traffic]
    margins = [slack * part / sum(spread) for part in spread]
    chance = (100 - percentile) / 100
    work = [
        tail_of(broker, margin).exceeded_by(chance) if margin > 0 else 0.0
        for broker, margin in zip(traffic, margins, strict=True)
    ]
    rates = [broker.rate + margin for broker, margin in zip(traffic, margins, strict=True)]
    return shares_of(rate_micro, burst_micro, rates, work, [broker.batch for broker in traffic])


def shares_of(
    rate_micro: int, burst_micro: int, rates: Sequence[float], work: Sequence[float], batches: Sequence[int]
) -> Shares:
    """Return shares with ``rates`` (msg/s) and bursts that give work of ``work`` + 1 messages the same delay d.

    The bursts are work + 1 - r_l d, for the d at which they sum to the burst. The sums are exact; rate 0: (0, 0).
    """
    burst = from_micro(burst_micro)
    floors = _floors(rates, batches, burst)
    bursts = _levelled(rates, [messages + 1 for messages in work], floors, burst)
    return list(
        zip(split(rate_micro, rates, floor_micro=1), split(burst_micro, bursts, floor_micro=MICRO), strict=True)
    )


def _floors(rates: Sequence[float], batches: Sequence[int], burst: float) -> list[float]:
    whole = [float(batch) if rate > 0 else 0.0 for rate, batch in zip(rates, batches, strict=True)]
    return whole if sum(whole) <= burst else [min(floor, 1.0) for floor in whole]


def _levelled(rates: Sequence[float], wanted: Sequence[float], floors: Sequence[float], burst: float) -> list[float]:
    """Return bursts, messages: ``wanted`` minus rate times one delay, at least the floors. Their sum is ``burst``."""

    def at(delay_s: float) -> list[float]:
        return [
            max(floor, want - rate * delay_s) if rate > 0 else 0.0
            for rate, want, floor in zip(rates, wanted, floors, strict=True)
        ]

    most_s = max(want / rate for want, rate in zip(wanted, rates, strict=True) if rate > 0)
    least_s = min((sum(wanted) - burst) / sum(rates), most_s) - 1.0
    while sum(at(least_s)) < burst:
        least_s -= 2 * (most_s - least_s)
    for _ in range(_HALVINGS):
        middle_s = (least_s + most_s) / 2
        if middle_s in (least_s, most_s):
            break
        least_s, most_s = (middle_s, most_s) if sum(at(middle_s)) >= burst else (least_s, middle_s)
    return at(least_s)
