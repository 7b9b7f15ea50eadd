"""Brokers as they present themselves, and as operators and supervisors change them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import trio

from distributor.model.broker_lifecycle import BrokerEvent, BrokerState
from distributor.model.cluster import Broker, Topic
from distributor.model.incarnations import check_succession
from distributor.model.older_store import brokers_of, check_cluster
from distributor.model.state_change import StateChange
from distributor.placement import planner
from distributor.placement.reasons import no_room_for
from distributor.placement.share_targets import after_death
from distributor.registry.broker_updates import (
    AppliedUpdate,
    BrokerUpdate,
    UpdateContext,
    affected_topics,
    apply_broker_update,
    has_part,
    is_acknowledgement,
)
from distributor.registry.maintenance import Maintenance
from distributor.registry.room import Room
from distributor.registry.state import ClusterState
from distributor.registry.topic_change import with_shares_advanced
from srtm.errors import BadInput, Conflict, Unavailable
from srtm.log import Log
from srtm.topics.capacity import Capacity

_LOG = Log("distributor")
_MAX_LISTED = 20
_MAX_LOST_CHANGES = 1 << 20  # of an older store: what others were told is behind no later version
_MAX_CLAIMED_VERSION = 2**62  # a version that a broker may say it has; the store counts to 2**63


class BrokerRequests:
    """Registers brokers, records their deaths, drains and forgets them."""

    def __init__(self, state: ClusterState, room: Room, maintenance: Maintenance) -> None:
        self._state = state
        self._room = room
        self._maintenance = maintenance
        self._applied: dict[str, AppliedUpdate] = {}  # {broker: its latest update}
        self._foreign: dict[str, int] = {}  # {broker that was refused: its cluster}

    # What a broker says

    async def apply_update(self, update: BrokerUpdate) -> None:
        """Apply what a broker says of itself.

        Raises Conflict for an incarnation that is not the latest, and for another broker of the same name; BadInput for
        a version that makes no sense.
        """
        state, broker = self._state, update.broker
        async with state.writing:
            old = self._state.brokers.get(broker.name)
            self._check_others_were_asked(old)
            if old is not None:
                check_succession(old, broker, in_use=partial(self._is_in_use, old.name))
            self._check_cluster(update)
            store_is_older = self._catch_up_with(update)
            unknown, suspects = self._unheard(update, store_is_older)
            changes = self._state.table.changes.count
            before = self._state.topics
            changed = self._topics_after(update, old, suspects)
            acknowledged = broker == old and all(is_acknowledgement(before[new.name], new) for new in changed)
            if acknowledged and not store_is_older and not unknown:
                state.show_acknowledged(changed)
            else:
                await state.commit(self._change_by(update, old, changed, unknown))
            state.saw_older_store |= store_is_older
            self._applied[broker.name] = AppliedUpdate(update, changes)
            self._state.liveness.hear(broker.name, 0.0)  # before anybody looks whether its leases are over
        if broker != old:
            self._maintenance.end_grace(broker.name)
            self._maintenance.wake()

    def _check_others_were_asked(self, old: Broker | None) -> None:
        """Check that a name is free which the store says is. Raises Unavailable right after a start.

        The store may be older: then the brokers that it knows tell who has the name.
        """
        if (old is None or old.dead) and not self._state.is_settled():
            rule = "which brokers there are is not known yet: those that the store knows are asked first; ask again"
            raise Unavailable(rule)

    def _check_cluster(self, update: BrokerUpdate) -> None:
        """Check that the broker is of this cluster, and log once if it is not. Raises Conflict."""
        name, adopts = update.broker.name, self._state.config.adopt_brokers
        try:
            check_cluster(name, update.cluster, self._state.identity, adopts=adopts)
        except Conflict as error:
            if self._foreign.get(name) != update.cluster:
                _LOG.warning("a broker is refused", reason=error)
            self._foreign[name] = update.cluster
            raise

    def _catch_up_with(self, update: BrokerUpdate) -> bool:
        """Whether the store is older than what the broker was told. Then no version may be handed out twice."""
        name = update.broker.name
        ahead = max(update.have_version, max(update.applied.values(), default=0))
        if ahead > max(self._state.version, _MAX_CLAIMED_VERSION):
            raise BadInput("have_version", ahead, f"must be at most {_MAX_CLAIMED_VERSION}: no cluster counts so far")
        is_older = (
            update.have_version > self._state.desired_version(name)
            or self._state.is_lost(ahead)
            or ahead > self._state.version
        )
        if is_older and update.names_peers and update.peers is None:
            raise Unavailable(f"the store is older than what broker {name} was told: it has to name the others")
        if is_older:
            others_may_be_ahead = 0 if self._state.saw_older_store else _MAX_LOST_CHANGES
            self._state.version = max(self._state.version, ahead) + others_may_be_ahead
            self._state.desired.forget(name)
        return is_older

    def _unheard(self, update: BrokerUpdate, store_is_older: bool) -> tuple[list[Broker], set[str]]:
        """(brokers that the store does not know, all that may have more than is stored), of an older store."""
        state, name = self._state, update.broker.name
        is_news = store_is_older or (state.saw_older_store and name not in self._applied)
        if not is_news:
            return [], set()
        is_ours = update.cluster in (0, state.identity)
        others = {peer: one for peer, one in (update.peers or {}).items() if peer != name}
        unknown = brokers_of(others, update.peer_claims, state.brokers) if is_ours else []
        suspects = {broker.name for broker in unknown}
        if not state.saw_older_store:
            suspects |= state.brokers.keys() - state.dead_brokers() - {name}
            waits = f"nothing grows before these were heard: {_listed(suspects)}" if suspects else "it counts now"
            _LOG.warning("the store is older than what brokers were told", broker=name, so=waits)
        lost = [topic for topic in update.applied if state.managed_topic(topic) is None]
        if lost and store_is_older:
            rule = "unlimited until they are submitted again"
            _LOG.warning(
                "the store does not know topics that a broker limits", broker=name, topics=_listed(lost), so=rule
            )
        return unknown, suspects

    def _topics_after(self, update: BrokerUpdate, old: Broker | None, suspects: Collection[str]) -> list[Topic]:
        """The topics that ``update`` changes."""
        name, last = update.broker.name, self._applied.get(update.broker.name)
        others = self._state.table.changes.since(last.changes) if last is not None else ()
        topics, removals = self._state.topics, self._state.table.pending_removals
        # Suspects may have a share of any topic.
        affected = topics.values() if suspects else affected_topics(last, update, topics, others, removals)
        if not affected:
            return []
        context = UpdateContext(
            version=self._state.version + 1,
            live=self._state.live() | {name},
            is_restart=_is_restart(update, old),
            other_dead=self._state.dead_brokers() - {name} if old is not None and old.dead else None,
            is_lost=self._state.is_lost,
            suspects=suspects,
            limits=self._room.limits_now,
        )
        changed = []
        for topic in affected:
            updated = apply_broker_update(topic, update, context)  # the same object if nothing changed
            if updated is not topic:
                changed.append(updated)
        return changed

    def _change_by(
        self, update: BrokerUpdate, old: Broker | None, topics: Sequence[Topic], unknown: Sequence[Broker]
    ) -> StateChange:
        broker = update.broker
        event = BrokerEvent.START if old is None or _is_restart(update, old) else BrokerEvent.SYNC
        is_live = self._state.state_after(broker.name, event) is BrokerState.LIVE
        decision = f"{broker.name} is back from the dead" if old is not None and old.dead else ""
        draining = {broker.name: False} if is_live and broker.name in self._state.draining else {}
        return StateChange(topics=topics, brokers=[broker, *unknown], draining=draining, decision=decision)

    async def declare_dead(self, name: str, incarnation: str) -> None:
        """Record the proof that one incarnation of a broker ended. It is not heard again.

        Its tokens are free at once; its publishers keep their assignment for the grace period. Raises NotFound;
        Conflict if another incarnation is known.
        """
        async with self._state.writing:
            broker = self._state.broker(name)
            if broker.incarnation != incarnation:
                rule = f"broker {name} is known as incarnation {broker.incarnation}"
                raise Conflict("incarnation", incarnation, rule)
            if self._state.broker_state(name) is not BrokerState.DEAD:
                await self._free_shares(replace(broker, dead=True))
        self._maintenance.start_grace(name)
        self._maintenance.wake()

    async def _free_shares(self, dead: Broker) -> None:
        """What ``dead`` had goes to the others, whose shares need no plan for that. Under ``writing``."""
        name, live, version = dead.name, self._state.live() - {dead.name}, self._state.version + 1
        dead_brokers = self._state.dead_brokers() | {name}
        freed = [
            after_death(topic, name, dead_brokers, self._room.limits_now(topic))
            for topic in self._state.topics.values()
            if name in topic.leases.holdings or name in topic.leases.target
        ]
        topics = [topic if topic.removed else with_shares_advanced(topic, live, version) for topic in freed]
        grace = f"its publishers keep their places for {self._state.config.rejoin_grace_s:g} s"
        decision = f"{name} died: its tokens go to the others, {grace}"
        await self._state.commit(StateChange(topics=topics, brokers=[dead], decision=decision))

    def _is_in_use(self, name: str) -> bool:
        """Whether a broker is heard from, or has publishers or tokens."""
        return self._state.is_alive(name) or self._has_any_part(name)

    # What an operator asks for

    async def drain(self, name: str, *, force: bool) -> None:
        """Take a broker out of service: its publishers move now, its tokens once it has no use for them.

        Changes nothing if it drains already, or has. Raises NotFound; Conflict if it is not heard from, or if the
        others lack capacity and ``force`` is not set.
        """
        await self._state.wait_settled()
        async with self._state.placing:
            self._state.broker(name)
            if name in self._state.draining:
                return
            if self._state.state_after(name, BrokerEvent.DRAIN) is None:
                raise Conflict(
                    "broker", name, f"is not heard from: start it, or `srtm brokers dead {name}` if it has ended"
                )
            lacking = {} if force else await self._lacking_without(name)
            if lacking:
                raise Conflict("broker", name, f"{no_room_for(lacking)}; --force drains it anyway")
            async with self._state.writing:
                await self._state.commit(StateChange(draining={name: True}))
            await self._maintenance.move_publishers_off(name)

    async def undrain(self, name: str) -> None:
        """Take back the drain of a broker whose process has ended, so that its supervisor starts it again.

        Changes nothing if it is not drained. Raises NotFound; Conflict while it still delivers what it has.
        """
        async with self._state.writing:
            self._state.broker(name)
            if name not in self._state.draining:
                return
            if self._state.state_after(name, BrokerEvent.UNDRAIN) is None:
                rule = "still drains: ask again once it has ended, or stop its process and start it again"
                raise Conflict("broker", name, rule)
            await self._state.commit(StateChange(draining={name: False}))

    async def _lacking_without(self, name: str) -> dict[str, float]:
        """{topic: msg/s for which there would be no room without broker ``name``}. Under ``placing``."""
        topics, lacking = dict(self._state.topics), {}
        for topic in self._state.placed_on(name):
            offered = self._room.offered(topic.spec, topics, without=name)
            held = topic.placement.held(without={name})
            plan = await trio.to_thread.run_sync(planner.place_rest, topic.spec, topic.burst, offered, held)
            topics[topic.name] = replace(topic, placement=plan.placement)
            if plan.placement.missing > topic.placement.missing:
                lacking[topic.name] = plan.placement.missing - topic.placement.missing
        return lacking

    async def set_capacity(self, name: str, figure: Capacity) -> None:
        """Replace what is known of broker ``name`` for one promise and traffic class. Raises NotFound."""
        async with self._state.writing:
            self._state.broker(name)
            others = [known for known in self._state.capacities.get(name, ()) if known.key != figure.key]
            await self._state.commit(StateChange(capacities={name: (*others, figure)}))
        self._maintenance.wake()

    async def forget_capacities(self, name: str) -> None:
        """Only what the operator of broker ``name`` states counts then. Raises NotFound."""
        async with self._state.writing:
            self._state.broker(name)
            await self._state.commit(StateChange(capacities={name: ()}))
        self._maintenance.wake()

    async def forget(self, name: str) -> None:
        """Drop a broker that is proven dead, or has nothing. Raises NotFound, Conflict."""
        await self._state.wait_settled()
        incarnation = self._state.broker(name).incarnation
        self._check_may_forget(name, incarnation)
        await self._maintenance.evict(name)
        async with self._state.placing, self._state.writing:
            self._check_may_forget(name, incarnation)  # it may have come back, or got something, meanwhile
            await self._state.commit(StateChange.forget(name))
            self._applied.pop(name, None)

    def _check_may_forget(self, name: str, incarnation: str) -> None:
        broker = self._state.broker(name)
        if broker.incarnation != incarnation:
            raise Conflict("broker", name, f"has come back, as incarnation {broker.incarnation}")
        if self._state.broker_state(name) is not BrokerState.DEAD and self._has_any_part(name):
            rule = f"has publishers or tokens and is not proven dead: stop it, and say so by `srtm brokers dead {name}`"
            raise Conflict("broker", name, rule)

    def _has_any_part(self, name: str) -> bool:
        return any(has_part(topic, name) for topic in self._state.topics.values())


def _is_restart(update: BrokerUpdate, old: Broker | None) -> bool:
    return old is not None and update.broker.incarnation != old.incarnation


def _listed(names: Collection[str]) -> str:
    """Some of ``names``."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(sorted(names)[:_MAX_LISTED]) + more
