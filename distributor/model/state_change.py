"""One change of the cluster state, as a value: what a commit stores and then shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from distributor.model.cluster import Broker, FittingRecord, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from srtm.contracts.versioned import Contracts
from srtm.topics.capacity import Capacity


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """Every topic, broker and record named here replaces the one of the same name."""

    topics: Sequence[Topic] = ()
    brokers: Sequence[Broker] = ()
    decision: str = ""  # an entry for the decision log of each of ``topics``; "" adds none
    draining: Mapping[str, bool] = field(default_factory=dict)  # {broker: whether it drains from now on}
    capacities: Mapping[str, tuple[Capacity, ...]] = field(default_factory=dict)  # {broker: all of its capacities}
    caps: CapacityCaps = NO_CAPS  # measured now
    fitting: FittingRecord | None = None
    contracts: Contracts | None = None  # all, after the change; None: it changes none
    forgotten_broker: str = ""
    forgotten_topics: Sequence[str] = ()  # removed ones that no broker may still know

    @classmethod
    def forget(cls, broker: str) -> StateChange:
        """Drop ``broker`` with all that is known of it: the next one of that name may be another machine."""
        return cls(forgotten_broker=broker, draining={broker: False}, capacities={broker: ()})
