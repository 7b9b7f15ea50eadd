"""What is expected of each broker from what is seen there and from what was declared. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Expected(NamedTuple):
    """On one broker, msg/s."""

    rate: float
    deviation: float


def expected(seen: Sequence[Expected], declared: Sequence[float]) -> list[Expected]:
    """``seen``, and what was ``declared`` in all (msg/s, on each) and is not seen anywhere, in proportion to what one
    would expect in proportion to the declaration alone.

    So without traffic it is what was declared, and the declaration counts for the less the more of it is seen: with the
    square of the part that is missing. Once as much is seen as was declared, only that counts.
    """
    total = sum(declared)
    missing = total - sum(one.rate for one in seen)
    if missing <= 0:
        return list(seen)
    parts = [(one.rate + each * missing / total) / total for one, each in zip(seen, declared, strict=True)]
    return [Expected(one.rate + part * missing, one.deviation) for one, part in zip(seen, parts, strict=True)]
