"""What is expected of each broker from what is seen there and from what was declared. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Expected(NamedTuple):
    """On one broker, msg/s."""

    rate: float
    deviation: float


def expected(seen: Sequence[Expected], declared: Sequence[float]) -> list[Expected]:
    """``seen``, and what was ``declared`` in all (msg/s, on each) and is not seen anywhere.

    That goes to those below their declaration, by how much they are, as far as what is seen there may be chance; and
    the rest in proportion to what one would expect in proportion to the declaration alone. So without traffic it is
    what was declared, and the declaration counts for the less the more of it is seen. Once as much is seen as was
    declared, only that counts.
    """
    total = sum(declared)
    missing = total - sum(one.rate for one in seen)
    if missing <= 0:
        return list(seen)
    gaps = [max(0.0, each - one.rate) for one, each in zip(seen, declared, strict=True)]
    below = sum(gaps)  # no less than what is missing
    chance = sum(min(gap, one.deviation) for gap, one in zip(gaps, seen, strict=True)) / below
    found = []
    for one, each, gap in zip(seen, declared, gaps, strict=True):
        known = (one.rate + each * missing / total) / total
        found.append(Expected(one.rate + missing * (chance * gap / below + (1 - chance) * known), one.deviation))
    return found
