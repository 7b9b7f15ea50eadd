"""Splits rates and bursts (micro-messages) into parts that sum exactly to the whole.

r_l and b_l are proportional to the assigned rates. A share is (0, 0) or holds at least one token
(section 3). Only integers and fractions are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from srtm.errors import BadInput
from srtm.units import MICRO, from_micro


def split(total_micro: int, weights: Sequence[float], floor_micro: int = 0) -> list[int]:
    """Split ``total_micro`` in proportion to ``weights``, by the largest remainder. The sum is exact.

    A part of weight 0 is 0; every other part is at least ``floor_micro``. Raises BadInput if a weight is negative or
    not finite, if no weight is above 0, or if the floors exceed the total.
    """
    if any(not math.isfinite(weight) or weight < 0 for weight in weights):
        raise BadInput("weights", list(weights), "must be finite and not negative")
    raised: set[int] = set()  # parts set to the floor
    active = {index for index, weight in enumerate(weights) if weight > 0}
    if not active:
        raise BadInput("weights", list(weights), "at least one must be above 0")
    if floor_micro * len(active) > total_micro:
        rule = f"is too little for {len(active)} parts of at least {from_micro(floor_micro):g}"
        raise BadInput("total", from_micro(total_micro), rule)
    exact = [Fraction(weight) for weight in weights]
    while True:
        parts = _by_largest_remainder(total_micro - floor_micro * len(raised), exact, sorted(active - raised))
        short = {index for index, part in parts.items() if part < floor_micro}
        if not short:
            return [floor_micro if index in raised else parts.get(index, 0) for index in range(len(weights))]
        raised |= short


def _by_largest_remainder(total: int, weights: Sequence[Fraction], members: Sequence[int]) -> dict[int, int]:
    whole = sum((weights[index] for index in members), Fraction(0))
    quotas = {index: total * weights[index] / whole for index in members}
    parts = {index: math.floor(quota) for index, quota in quotas.items()}
    by_remainder = sorted(members, key=lambda index: (parts[index] - quotas[index], index))
    for index in by_remainder[: total - sum(parts.values())]:
        parts[index] += 1
    return parts


def split_bucket(rate_micro: int, burst_micro: int, assigned_rates: Sequence[float]) -> list[tuple[int, int]]:
    """Split a bucket into shares (r_l, b_l), micro-messages, in proportion to the assigned rates. The sums are exact.

    The share of rate 0 is (0, 0); every other share holds at least one token. Raises BadInput if all rates are 0, or
    if the burst has fewer tokens than there are shares.
    """
    shares = sum(rate > 0 for rate in assigned_rates)
    if shares * MICRO > burst_micro:
        rule = f"cannot be split over {shares} brokers: every share needs one token"
        raise BadInput("burst", from_micro(burst_micro), rule)
    rates = split(rate_micro, assigned_rates, floor_micro=1)
    bursts = split(burst_micro, assigned_rates, floor_micro=MICRO)
    return list(zip(rates, bursts, strict=True))
