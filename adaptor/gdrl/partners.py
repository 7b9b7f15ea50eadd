"""Who exchanges with whom. Pure; brokers use this."""

from __future__ import annotations

import random
from collections.abc import Sequence

from srtm.topics.adaptation import Partners


def neighbours(members: Sequence[str], name: str) -> list[str]:
    """Of ``name`` on the ring of all ``members`` in order of name: two, one where there are only two, or none."""
    ring = sorted(members)
    at = ring.index(name)
    return list(dict.fromkeys(other for step in (1, -1) if (other := ring[(at + step) % len(ring)]) != name))


def partner(kind: Partners, members: Sequence[str], name: str, turn: int, dice: random.Random) -> str | None:
    """Whom ``name`` asks in its turn number ``turn``: anybody, or its neighbours in turn. None: there is nobody."""
    if kind == "ring":
        beside = neighbours(members, name)
        return beside[turn % len(beside)] if beside else None
    others = sorted(set(members) - {name})
    return dice.choice(others) if others else None
