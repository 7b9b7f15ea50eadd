"""What a sync tells of a store that is older than the cluster, for a copy was put back, or is of another one. Pure.

Brokers of which such a store knows nothing may have a share of any topic. Every broker says, when it comes to a new
leader, which brokers the cluster had. Nothing grows before all of these were heard (``Leases.suspected``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributor.model.cluster import Broker
from srtm.errors import Conflict

ADOPT_OPTION = "--adopt-brokers"


def check_cluster(broker: str, told: int, identity: int, *, adopts: bool) -> None:
    """Check that a broker that was ``told`` an identity of a store is of this one. 0 is none. Raises Conflict."""
    if adopts or told in (0, identity):
        return
    rule = (
        f"broker {broker} is a member of another cluster, which this store does not know, and keeps its limits. "
        f"Is --store right? Start the distributor with {ADOPT_OPTION} to drop those limits: their topics are then "
        "unlimited until they are submitted again"
    )
    raise Conflict("cluster", told, rule)


def brokers_of(
    peers: Mapping[str, str], claims: Mapping[str, Sequence[str]], known: Mapping[str, Broker]
) -> list[Broker]:
    """The brokers among ``peers`` ({broker: incarnation}) that the store does not know, or knows as dead.

    ``claims``: {one of them: what it alone can hold}. Without any no other process proves the end of that one, unless
    somebody says so: it may run on a copy of its directory.
    """
    return [
        Broker(
            name=name,
            incarnation=incarnation,
            srtm_version="",
            tcp_address="",
            http_address="",
            mcap=0.0,
            accepting=False,
            claims=tuple(claims.get(name, ())),
        )
        for name, incarnation in peers.items()
        if name not in known or (known[name].dead and known[name].incarnation != incarnation)
    ]
