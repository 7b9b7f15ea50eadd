"""What brokers can still take of a topic: by what they state, what was measured of them, and what they have."""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio

from distributor.model.broker_load import NO_LOAD, loads_of
from distributor.model.cluster import Placement, Topic
from distributor.model.columns import ROUNDING
from distributor.model.full_brokers import CapacityCaps
from distributor.model.leases import MICRO
from distributor.placement import joint, planner
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.headroom import max_rate
from distributor.placement.share_targets import MIN_SHARE_FRACTION, part_of_envelope
from distributor.registry.state import ClusterState
from srtm.topics.spec import TopicSpec


class Room:
    """Questions about the room on brokers. Changes nothing."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def offered(
        self,
        spec: TopicSpec,
        topics: Mapping[str, Topic] | None = None,
        *,
        without: str = "",
        ignore_caps: bool = False,
    ) -> list[BrokerCapacity]:
        """All brokers but ``without``, and what is left of them for the topic of ``spec``.

        ``topics``: used in place of the present ones. ``ignore_caps``: whatever fittings measured of the brokers.
        """
        state = self._state
        known = state.topics if topics is None else topics
        loads = state.loads if topics is None else loads_of(topics.values())
        brokers = [broker for name, broker in state.brokers.items() if name != without]
        found = planner.capacities(brokers, state.takes_more(), loads, spec, state.capacities)
        if ignore_caps:
            return found
        here = known.get(spec.name)
        caps = state.caps.limits(spec.slo, spec.publishers, here.placement.assigned if here is not None else {})
        return [capacity.at_most(caps.get(capacity.name, math.inf)) for capacity in found]

    async def homes(self, spec: TopicSpec) -> dict[str, str]:
        """The homes (``joint``) of those publishers of ``spec`` that are not pinned."""
        state, pinned = self._state, self._state.pins.of(spec.name)
        found = await trio.to_thread.run_sync(joint.homes, spec, state.managed(), state.takes_more())
        return {one: home for one, home in found.items() if one not in pinned}

    def overfull(self, topic: Topic, placement: Placement, *, ignore_caps: bool = False) -> list[str]:
        """Brokers that ``placement`` gives more of ``topic`` than they have now, and more than they have room for.

        Other topics may have come since the placement was planned.
        """
        rooms = {capacity.name: capacity.rcap for capacity in self.offered(topic.spec, ignore_caps=ignore_caps)}
        now = topic.placement.assigned
        return sorted(
            name
            for name, rate in placement.assigned.items()
            if rate > max(rooms.get(name, 0.0), now.get(name, 0.0)) + ROUNDING
        )

    def limits_now(self, topic: Topic) -> dict[str, float]:
        """``limits`` of ``topic`` as it is placed."""
        return self.limits(topic.spec, topic.placement, self._state.caps)

    def limits(self, spec: TopicSpec, placement: Placement, caps: CapacityCaps) -> dict[str, float]:
        """{broker: msg/s of the topic that it can serve} of the brokers that are full and have other topics.

        The promises of those come first. What is assigned there is served, and a little of what waits.
        """
        if not caps.rates or not len(spec.publishers):
            return {}
        floor = spec.publishers.load * MIN_SHARE_FRACTION
        return {
            name: max(rate, floor)
            for name, rate in caps.limits(spec.slo, spec.publishers, placement.assigned).items()
            if self._state.loads.get(name, NO_LOAD).allocated_to_others(spec.name) > 0
        }

    def max_rate(self, topic: Topic, name: str) -> float | None:
        """Msg/s of ``topic`` that broker ``name`` can process beside its other load; None: not known."""
        mcap = self._mcap(name)
        known = max_rate(topic, name, mcap, self._state.headroom.other_load(name, topic.name)) if mcap else math.inf
        limit = self.limits_now(topic).get(name)
        if limit is not None:
            batch = topic.placement.publishers.largest_batch
            part = part_of_envelope(topic.leases.envelope, topic.placement.publishers.load, limit, batch)
            known = min(known, part.rate / MICRO)
        return None if known == math.inf else known

    def leaves_room(self, name: str) -> bool:
        """Whether the load of broker ``name`` bounds the share of no topic there, as far as is known."""
        mcap = self._mcap(name)
        has_room = not mcap or self._state.headroom.leaves_room(name, mcap)
        return has_room and name not in self._state.caps.brokers

    def _mcap(self, name: str) -> float:
        """Msg/s; 0: not known."""
        broker = self._state.brokers.get(name)
        if broker is None:
            return 0.0
        return self._state.headroom.mcap(broker, self._state.capacities.get(name, ()))
