"""Shares between a floor and what a broker can process, with exact sums.

The floor, max(2 % of the topic, one token, one batch), is what lets an idle broker begin again. It gives way where
there are too many brokers for it: to half of an equal part, and to one token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adaptor.observations import Envelope, Member, Shares
from srtm.errors import BadInput
from srtm.units import MICRO, from_micro

_HALVINGS = 200


@dataclass(frozen=True)
class Limits:
    """Of each member, micro: the least and the most of a rate, and the least of a burst."""

    least_rates: list[int]
    most_rates: list[int]
    least_bursts: list[int]


def limits(envelope: Envelope, members: Sequence[Member], floor: float) -> Limits:
    """``floor``: part of the topic, 0.02 for 2 %. Raises BadInput where the burst has fewer tokens than members."""
    count = len(members)
    if count * MICRO > envelope.burst_micro:
        rule = f"cannot be split over {count} brokers: every share needs one token"
        raise BadInput("burst", from_micro(envelope.burst_micro), rule)
    part = min(floor, 0.5 / count)
    most = [_capacity(member, envelope) for member in members]
    least = [min(max(1, int(envelope.rate_micro * part)), top) for top in most]
    bursts = [max(MICRO, member.batch * MICRO, int(envelope.burst_micro * part)) for member in members]
    if sum(bursts) > envelope.burst_micro:
        bursts = [MICRO] * count
    return Limits(least, most, bursts)


def is_over(members: Sequence[Member]) -> bool:
    """Whether anybody has more than it can process: others have come to its broker since."""
    return any(from_micro(member.share[0]) > member.capacity for member in members)


def shares_within(envelope: Envelope, bounds: Limits, rates: Sequence[float], bursts: Sequence[float]) -> Shares:
    """Shares as near to ``rates`` and ``bursts`` (weights, in any unit) as ``bounds`` allow. They sum to the envelope;
    rates to less only where all brokers together cannot process it."""
    unlimited = [envelope.burst_micro] * len(bursts)
    return list(
        zip(
            bounded(envelope.rate_micro, rates, bounds.least_rates, bounds.most_rates),
            bounded(envelope.burst_micro, bursts, bounds.least_bursts, unlimited),
            strict=True,
        )
    )


def bounded(total: int, weights: Sequence[float], least: Sequence[int], most: Sequence[int]) -> list[int]:
    """Whole parts in proportion to ``weights``, each within its bounds, that sum to ``total``; to the sum of ``most``
    where that is less. Without any weight all are alike."""
    total = min(total, sum(most))
    weights = [float(weight) for weight in weights] if sum(weights) > 0 else [1.0] * len(weights)
    scale = _scale(total, weights, least, most)
    parts = [_clamped(weight * scale, low, high) for weight, low, high in zip(weights, least, most, strict=True)]
    return _with_sum(parts, total, least, most)


def _scale(total: int, weights: Sequence[float], least: Sequence[int], most: Sequence[int]) -> float:
    """By how much to multiply the weights, to within a float."""
    low, high = 0.0, 2.0 * total / min(weight for weight in weights if weight > 0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        parts = (
            _clamped(weight * middle, bottom, top) for weight, bottom, top in zip(weights, least, most, strict=True)
        )
        low, high = (middle, high) if sum(parts) <= total else (low, middle)
    return low


def _with_sum(parts: list[int], total: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """What rounding (and a weight of 0) left over, to whoever has room, the largest first."""
    over = sum(parts) - total
    for at in sorted(range(len(parts)), key=lambda index: -parts[index]):
        room = min(over, parts[at] - least[at]) if over > 0 else -min(-over, most[at] - parts[at])
        parts[at] -= room
        over -= room
    return parts


def _clamped(value: float, low: int, high: int) -> int:
    return max(low, min(high, int(value) if math.isfinite(value) else high))


def _capacity(member: Member, envelope: Envelope) -> int:
    if not math.isfinite(member.capacity):
        return envelope.rate_micro
    return min(envelope.rate_micro, max(1, int(member.capacity * MICRO)))
