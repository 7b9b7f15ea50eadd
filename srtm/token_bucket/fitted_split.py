"""The split of a bucket that fits its brokers' traffic (design section 5): a small one gets more than its proportion.

The unfinished work U of a server with rate r_l, to which firings of I_l messages come as a Poisson process, lambda_l
messages a second, exceeds x with a probability of about C exp(-t x / I_l), where q (e^t - 1) = t and
C = (1 - q) / (q e^t - 1) for the load q = lambda_l / r_l (the Cramer-Lundberg approximation; Asmussen, "Applied
Probability and Queues", XIII 5). About (I_l - 1) / 2 messages of its own firing are ahead of a message. It waits longer
than d if U + 1 and those less b_l exceed r_l d (appendix A, Eq. 2). So that a part p of the messages wait longer than d
on every broker alike, it takes

    b_l = 1 + (I_l - 1) / 2 + I_l ln(C / p) / t - r_l d

These sum to b for one d. In heavy traffic, where C is 1 and 1 / t is lambda_l / (r_l - lambda_l) / 2, that d is
smallest where the slack, r less all lambda_l, is divided in proportion to sqrt(I_l lambda_l); what is more, at first
I_l (ln(1 / p) - 1) / 3, hardly goes with r_l. Floats only weigh here; ``srtm.token_bucket.exact_split`` keeps the sums
exact. No numpy: brokers may use this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from srtm.token_bucket.exact_split import MICRO, from_micro, split, split_bucket

Shares = list[tuple[int, int]]  # (r_l, b_l), micro-messages/s and micro-messages

_HALVINGS = 200
_STEPS = 6  # no more changes anything
_LEAST_LOAD = 1e-9  # of less work there is as little
_LEAST_IDLE = 1e-9  # what is busier still has a tail as long as any; much nearer to none, floats cannot tell them apart


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What a broker gets of a topic."""

    rate: float  # lambda_l, msg/s
    dispersion: float = 1.0  # I_l: of messages per firing, weighted by messages, where firings are Poisson
    batch: int = 1  # the largest that one publisher sends at once, messages


@dataclass(frozen=True, slots=True)
class Tail:
    """Of the work that a message finds, with what is ahead of it in its own firing, messages: the chance of more than
    ``shift`` is about 1, and falls by a factor of e each ``scale``."""

    scale: float
    shift: float

    def exceeded_by(self, chance: float) -> float:
        """What is exceeded with that ``chance``, messages."""
        return max(0.0, self.shift - self.scale * math.log(chance))

    def chance_above(self, work: float) -> float:
        """Of more than so many messages."""
        return math.exp(-max(0.0, work - self.shift) / self.scale)


def tail_of(traffic: Traffic, margin: float) -> Tail:
    """``margin``: what its share has above its rate, msg/s, > 0."""
    load = min(1 - _LEAST_IDLE, traffic.rate / (traffic.rate + margin))
    idle = max(_LEAST_IDLE, margin / (traffic.rate + margin))
    decay = _decay(max(load, _LEAST_LOAD), idle)
    first = math.log(idle / (decay - idle)) / decay
    own = max(0.0, traffic.dispersion - 1) / 2
    return Tail(scale=traffic.dispersion / decay, shift=own + traffic.dispersion * first)


def _decay(load: float, idle: float) -> float:
    """t > 0 with load (e^t - 1) = t. ``idle``: 1 - load, as exact as it can be said. By Newton's steps for
    ln(1 + t / load) - t, which is concave, from beyond its top: from the second on they come down to its root."""
    found = 6 * idle / (2 + load)  # to the second order of idle
    for _ in range(_STEPS):
        found -= (math.log1p(found / load) - found) / (1 / (load + found) - 1)
    return found


def fitted_bucket(rate_micro: int, burst_micro: int, traffic: Sequence[Traffic], percentile: float = 99.0) -> Shares:
    """Sub-token buckets (r_l, b_l), micro, for the same delay at ``percentile`` on every broker; sums exact.

    Rate 0: (0, 0). Every other share holds one token at least, and the largest batch where the burst suffices for
    that. Without slack the split is that of ``split_bucket``, and so are the errors raised.
    """
    proportional = split_bucket(rate_micro, burst_micro, [one.rate for one in traffic])
    slack = from_micro(rate_micro) - sum(one.rate for one in traffic)
    if slack <= 0 or sum(one.rate > 0 for one in traffic) == 1:
        return proportional
    spread = [math.sqrt(one.dispersion * one.rate) for one in traffic]
    margins = [slack * part / sum(spread) for part in spread]
    chance = (100 - percentile) / 100
    work = [
        tail_of(one, margin).exceeded_by(chance) if margin > 0 else 0.0
        for one, margin in zip(traffic, margins, strict=True)
    ]
    rates = [one.rate + margin for one, margin in zip(traffic, margins, strict=True)]
    return shares_of(rate_micro, burst_micro, rates, work, [one.batch for one in traffic])


def shares_of(
    rate_micro: int, burst_micro: int, rates: Sequence[float], work: Sequence[float], batches: Sequence[int]
) -> Shares:
    """Shares with ``rates`` (msg/s), and bursts under which U + 1 at most ``work`` + 1 messages waits equally long
    everywhere: work + 1 - r_l d, for the d at which these sum to the burst. Sums exact; rate 0: (0, 0)."""
    burst = from_micro(burst_micro)
    floors = _floors(rates, batches, burst)
    bursts = _levelled(rates, [one + 1 for one in work], floors, burst)
    return list(
        zip(split(rate_micro, rates, floor_micro=1), split(burst_micro, bursts, floor_micro=MICRO), strict=True)
    )


def _floors(rates: Sequence[float], batches: Sequence[int], burst: float) -> list[float]:
    whole = [float(batch) if rate > 0 else 0.0 for rate, batch in zip(rates, batches, strict=True)]
    return whole if sum(whole) <= burst else [min(floor, 1.0) for floor in whole]


def _levelled(rates: Sequence[float], wanted: Sequence[float], floors: Sequence[float], burst: float) -> list[float]:
    """Messages: wanted less rate times the delay for which all sum to ``burst``, none below its floor."""

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
