"""Topics as operators change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import trio

from distributor.model.cluster import FittingRecord, Placement, Topic
from distributor.model.leases import Leases
from distributor.model.state_change import StateChange
from distributor.placement import planner, proposals
from distributor.placement.planner import TopicPlan
from distributor.placement.promise_sizing import NO_SERVICES, Split
from distributor.placement.share_targets import with_declared_split
from distributor.registry.contract_requests import check_contracts
from distributor.registry.room import Room
from distributor.registry.state import ClusterState
from distributor.registry.topic_change import ShareContext, TopicChange, apply_topic_change, submitted_split
from distributor.storage.topic_rows import NO_PUBLISHERS
from srtm.errors import Conflict
from srtm.topics.mqtt_names import check_disjoint
from srtm.topics.spec import TopicSpec

FittingIntent = Callable[[TopicSpec], FittingRecord | None]  # None: nothing new


def not_fitted(_spec: TopicSpec) -> FittingRecord | None:
    """The intent of a topic that nobody wants fitted."""
    return None


class TopicRequests:
    """Creates, changes and removes topics."""

    def __init__(self, state: ClusterState, room: Room) -> None:
        self._state = state
        self._room = room

    async def submit(
        self,
        spec: TopicSpec,
        *,
        create_only: bool = False,
        fitting: FittingIntent = not_fitted,
        services: Mapping[str, int] = NO_SERVICES,
    ) -> Topic:
        """Create or change a topic. The same spec again changes nothing but a burst "auto" that is too small by now.

        ``fitting``: stored with the topic, so that the next leader fits it too. ``services``: ns that a message takes,
        by broker, where it is known: "auto" is sized by it. Raises Conflict, BadInput.
        """
        await self._state.wait_settled()
        async with self._state.placing:
            self._check_names(spec)
            old = self._state.managed_topic(spec.name)
            if old is None:
                return await self._change_spec(spec, await self._plan_new(spec, services), "submitted", fitting)
            if create_only:
                raise Conflict("name", spec.name, "a topic of this name exists: PUT changes it")
            sized = await trio.to_thread.run_sync(planner.with_burst, spec, old, services)
            if old.spec == spec and sized.burst == old.burst:
                return old
            return await self._change_spec(spec, await self._plan_change(old, sized, services), "changed", fitting)

    async def dry_run(self, spec: TopicSpec, services: Mapping[str, int] = NO_SERVICES) -> TopicPlan:
        """What ``submit`` would do. Changes nothing.

        Publishers that the topic has already stay where the placement suits ``spec`` too. Else they move as little as
        its principles allow, unless those have changed.
        """
        await self._state.wait_settled()
        self._check_names(spec)
        old = self._state.managed_topic(spec.name)
        if old is None:
            return await self._plan_new(spec, services)
        sized = await trio.to_thread.run_sync(planner.with_burst, spec, old, services)
        return await self._plan_change(old, sized, services)

    def split_after(self, spec: TopicSpec, placement: Placement) -> Split:
        """How a submission of ``spec`` that places the topic so would split whatever (r, b). It is as of now."""
        state = self._state
        context = ShareContext(
            version=0,
            live=state.live(),
            dead_brokers=state.dead_brokers(),
            limits=self._room.limits(spec, placement, state.caps),
        )
        return partial(submitted_split, state.topics.get(spec.name), placement, context)

    async def change_publishers(
        self,
        name: str,
        change: Callable[[TopicSpec], TopicSpec],
        fitting: FittingIntent = not_fitted,
        services: Mapping[str, int] = NO_SERVICES,
    ) -> Topic:
        """Add and remove publishers or change their rates by ``change``, which runs in a thread. Few others move.

        ``fitting``, ``services``: as in ``submit``. Raises NotFound, and what ``change`` raises.
        """
        await self._state.wait_settled()
        async with self._state.placing:
            old = self._state.topic(name)
            spec = await trio.to_thread.run_sync(change, old.spec)  # of many publishers: a second and more
            if spec == old.spec:
                return old
            return await self._change_spec(spec, await self.dry_run(spec, services), "publishers changed", fitting)

    async def set_options(self, name: str, change: Callable[[TopicSpec], TopicSpec]) -> Topic:
        """``change`` the mode, the split or the adaptation of a topic.

        Shares move only if the new mode or split demands it at once. Raises NotFound, and what ``change`` raises.
        """
        async with self._state.placing, self._state.writing:
            old, version = self._state.topic(name), self._state.version + 1
            spec = change(old.spec)
            if spec == old.spec:
                return old
            leases = self._leases_under(old, spec).advanced(self._state.live(), version)
            new = replace(old, spec=spec, version=version, leases=leases)
            await self._state.commit(StateChange(topics=[new], decision=proposals.options_line(old.spec, spec)))
            return new

    async def remove(self, name: str, *, purge: bool) -> None:
        """Take the placement and the limit of a topic away; with ``purge`` its queued messages too. Raises NotFound."""
        async with self._state.placing, self._state.writing:
            old, version = self._state.topic(name), self._state.version + 1
            new = Topic(
                spec=replace(old.spec, publishers=NO_PUBLISHERS),
                version=version,
                placement=Placement(publishers=NO_PUBLISHERS, brokers=(), at=np.zeros(0, dtype=np.int64)),
                assignment_version=version,
                leases=old.leases.closed(),
                removed=True,
                purged=purge,
            )
            decision = "removed with its messages" if purge else "removed"
            await self._state.commit(StateChange(topics=[new], decision=decision))

    def _check_names(self, spec: TopicSpec) -> None:
        """Check that no MQTT name of ``spec`` is another topic's, and that its contracts are there. Raises BadInput."""
        others = (topic for topic in self._state.topics.values() if not topic.removed and topic.name != spec.name)
        check_disjoint(spec.name, spec.mqtt, ((topic.name, topic.spec.mqtt) for topic in others))
        check_contracts(spec, self._state.contracts)

    async def _change_spec(self, spec: TopicSpec, plan: TopicPlan, reason: str, fitting: FittingIntent) -> Topic:
        change = TopicChange(spec=spec, plan=plan, reason=reason, by_operator=True, fitting=fitting(spec))
        return await apply_topic_change(self._state, self._room, change)

    async def _plan_new(self, spec: TopicSpec, services: Mapping[str, int]) -> TopicPlan:
        return await self._plan(await trio.to_thread.run_sync(planner.with_burst, spec, None), services)

    async def _plan_change(self, old: Topic, sized: TopicSpec, services: Mapping[str, int]) -> TopicPlan:
        """``sized``: as in ``_plan``."""
        burst = planner.burst_of(sized)
        if planner.fits_placement(old, sized, burst):
            kept = TopicPlan(burst, old.placement, old.reasons)
            return await trio.to_thread.run_sync(planner.sized, sized, kept, len(self._state.brokers), services)
        return await self._plan(sized, services)

    async def _plan(self, spec: TopicSpec, services: Mapping[str, int]) -> TopicPlan:
        """``spec`` has a number for its burst, or "auto" to be sized for the placement."""
        old, offered = self._state.managed_topic(spec.name), self._room.offered(spec)
        homes = await self._room.homes(spec)
        if old is None or not planner.has_same_principles(old.spec, spec):
            return await trio.to_thread.run_sync(planner.place_anew, spec, offered, homes, services)
        held = [old.placement.broker_of(publisher_id) for publisher_id in spec.publishers.ids]
        plan = await trio.to_thread.run_sync(planner.place_again, spec, offered, held, homes, services)
        return planner.with_pinned(plan, self._state.pins.of(spec.name, self._state.dead_brokers()))

    def _leases_under(self, topic: Topic, spec: TopicSpec) -> Leases:
        """The leases of ``topic`` once its options are those of ``spec``."""
        leases = topic.leases
        if proposals.needs_new_split(topic.spec, spec):
            limits = self._room.limits_now(topic)
            leases = with_declared_split(replace(topic, spec=spec), self._state.dead_brokers(), limits).leases
        return proposals.pooled_if_due(spec, leases)
