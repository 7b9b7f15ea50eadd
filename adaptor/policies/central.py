"""One broker owns the bucket, for reference: whoever has the most demand gets all of it but the others' floors.

Ownership stays where it is until another broker has clearly more demand, or the share there is something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from adaptor.observations import BIN_S, Envelope, Member, Shares
from adaptor.policies.bounds import limits, shares_within

_CLEARLY = 1.1  # times the owner's demand


def central(envelope: Envelope, members: Sequence[Member], *, window_s: float, floor: float) -> Shares | None:
    """New shares, or None where they are as they shall be. Raises BadInput as ``limits`` does."""
    count = max(1, round(window_s / BIN_S))
    demand = [sum(one.arrivals for one in member.bins[-count:]) for member in members]
    owner = max(range(len(members)), key=lambda at: members[at].share)
    most = max(range(len(members)), key=lambda at: demand[at])
    if demand[most] > _CLEARLY * demand[owner]:
        owner = most
    all_of_it = [float(at == owner) for at in range(len(members))]
    shares = shares_within(envelope, limits(envelope, members, floor), all_of_it, all_of_it)
    return None if shares == [member.share for member in members] else shares
