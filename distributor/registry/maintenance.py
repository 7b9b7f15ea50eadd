"""What happens to the cluster state by itself.

Grace periods of dead brokers end, expired leases go to other brokers, shares advance, publishers without a place get
one when brokers join, and acknowledgements are stored.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from distributor.model.cluster import Topic
from distributor.model.state_change import StateChange
from distributor.placement import planner
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.planner import TopicPlan
from distributor.registry.broker_updates import has_part
from distributor.registry.room import Room
from distributor.registry.state import ClusterState
from distributor.registry.topic_change import TopicChange, apply_topic_change, with_shares_advanced
from srtm.concurrency.outage import Outage
from srtm.errors import Unavailable
from srtm.log import Log
from srtm.topics.lease import MARGIN_MS

_PERIOD_S = 1.0  # how soon the silence of a broker is noticed, and how late acknowledgements are stored


class Maintenance:
    """``run`` it once, beside whatever else changes the state."""

    def __init__(self, state: ClusterState, room: Room) -> None:
        self._state = state
        self._room = room
        self._log = Log("distributor")
        self._attention = trio.Event()  # there is something to do before the period is over
        self._grace_ends: dict[str, float] = {}  # {dead broker: trio time after which its publishers go elsewhere}
        self._tried_on: dict[str, list[BrokerCapacity]] = {}  # {topic: brokers on which its rest found no room}
        self._advanced: tuple[Mapping[str, Topic], set[str]] = ({}, set())  # topics and live brokers, at the last look

    def wake(self) -> None:
        """There may be something to do now."""
        self._attention.set()

    def start_grace(self, broker: str) -> None:
        """``broker`` is dead: its publishers keep their assignment for ``rejoin_grace_s``."""
        ends_s = trio.current_time() + self._state.config.rejoin_grace_s
        self._grace_ends.setdefault(broker, ends_s)

    def end_grace(self, broker: str) -> None:
        """``broker`` is back."""
        self._grace_ends.pop(broker, None)

    async def run(self) -> None:
        """Until cancelled, once a period or when woken."""
        for name in self._state.dead_brokers():
            self.start_grace(name)
        outage = Outage()
        while True:
            try:
                await self._run_steps()
            except Unavailable as error:  # of the store: nothing was changed, and the next turn tries again
                if outage.is_news(str(error)):
                    self._log.warning("topics are not looked after until this is over", reason=error)
            else:
                if outage.ends():
                    self._log.info("topics are looked after again")
            with trio.move_on_after(_PERIOD_S):
                await self._attention.wait()
            self._attention = trio.Event()

    async def _run_steps(self) -> None:
        """Raises Unavailable."""
        await self._attempt(self._state.store_acknowledged)
        if not self._state.is_settled():
            await self._attempt(self._advance_shares)
            return
        await self._evict_after_grace()
        await self._attempt(self._reassign_expired_leases)
        await self._drain_again()
        await self._attempt(self._advance_shares)
        await self._place_missing()
        await self._attempt(self._forget_removed)

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run ``step``. Raises Unavailable.

        A defect in one step must end neither the others nor the leader: the next leader would meet it too.
        """
        try:
            await step()
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001
            self._log.failure("a step of the maintenance is defective", trace=traceback.format_exc())

    # Brokers that are gone

    async def _evict_after_grace(self) -> None:
        now_s = trio.current_time()
        for name, ends_s in [(name, ends_s) for name, ends_s in self._grace_ends.items() if ends_s <= now_s]:
            await self._attempt(partial(self._end_grace, name, ends_s))

    async def _end_grace(self, name: str, ends_s: float) -> None:
        await self.evict(name)
        if self._grace_ends.get(name) == ends_s:  # else it has come back meanwhile, and died again
            self._grace_ends.pop(name)

    async def evict(self, name: str) -> None:
        """``name`` is dead for good: its publishers go to other brokers."""
        async with self._state.placing:
            for topic in [topic for topic in self._state.topics.values() if has_part(topic, name)]:
                await self._evict_from(topic, name, f"{name} died")

    async def _reassign_expired_leases(self) -> None:
        """Reassign the shares and publishers of brokers whose timed lease has expired.

        Does nothing while no other broker has synced for ``MARGIN_MS``: then the network of this distributor is down,
        and moving publishers would not help.
        """
        state = self._state
        async with state.placing:
            for topic in list(state.topics.values()):
                for name in topic.leases.expired(state.silent_ms):
                    if self._others_sync(name):
                        reason = f"{name} was not heard from for longer than its lease of {topic.spec.lease}"
                        await self._evict_from(state.topics[topic.name], name, reason)

    def _others_sync(self, name: str) -> bool:
        others = self._state.live() - {name}
        return any(self._state.liveness.steady_s(other) * 1000 >= MARGIN_MS for other in others)

    async def _evict_from(self, topic: Topic, name: str, reason: str) -> None:
        """Under ``placing``."""
        if topic.removed:
            await self._free_share(topic.name, name)
            return
        plan = TopicPlan(topic.burst, topic.placement, topic.reasons)
        if name in topic.placement.brokers:
            plan = await self._plan_without(topic, name)
        change = TopicChange(spec=topic.spec, plan=plan, reason=reason, dead_broker=name)
        await apply_topic_change(self._state, self._room, change)

    async def _free_share(self, topic: str, name: str) -> None:
        """Of a topic that was removed."""
        async with self._state.writing:
            now = self._state.topics[topic]
            if self._state.is_gone(name, now):
                await self._state.commit(StateChange(topics=[replace(now, leases=now.leases.freed(name))]))

    async def _forget_removed(self) -> None:
        """Drop what is left of topics that were removed long ago."""
        async with self._state.writing:
            names = self._state.forgettable()
            if names:
                await self._state.commit(StateChange(forgotten_topics=names))

    # Drains

    async def _drain_again(self) -> None:
        """Drains that were begun before a restart, or failed."""
        for name in self._state.draining & self._state.brokers.keys():
            await self._attempt(partial(self._move_publishers_off, name))

    async def _move_publishers_off(self, name: str) -> None:
        async with self._state.placing:
            await self.move_publishers_off(name)

    async def move_publishers_off(self, name: str) -> None:
        """``name`` drains: its publishers go to other brokers. Under ``placing``."""
        for topic in self._state.placed_on(name):
            plan = await self._plan_without(topic, name)
            change = TopicChange(spec=topic.spec, plan=plan, reason=f"{name} is drained", leaving_broker=name)
            await apply_topic_change(self._state, self._room, change)

    # Shares and places

    async def _advance_shares(self) -> None:
        """Issue what may be issued: acknowledgements may have come in, and silent brokers need not be waited for."""
        state = self._state
        async with state.writing:
            live, topics, version = state.live(), state.topics, state.version + 1
            before, was_live = self._advanced
            known = before if was_live == live else {}  # of these nothing is left to issue
            changed = [
                advanced
                for topic in state.managed()
                if known.get(topic.name) is not topic
                and (advanced := with_shares_advanced(topic, live, version)) is not topic
            ]
            if changed:
                await state.commit(StateChange(topics=changed))
            self._advanced = topics, live

    async def _place_missing(self) -> None:
        """Publishers without a place get one, as far as there is room."""
        state = self._state
        incomplete = [topic.name for topic in state.managed() if topic.placement.missing > 0]
        self._tried_on = {name: self._tried_on[name] for name in incomplete if name in self._tried_on}
        for name in incomplete:
            if name not in state.being_fitted:
                await self._attempt(partial(self._place_rest, name))

    async def _place_rest(self, name: str) -> None:
        async with self._state.placing:
            topic = self._state.topics[name]
            offered = self._room.offered(topic.spec)
            if topic.removed or self._tried_on.get(name) == offered:
                return
            plan = await self._plan_rest(topic, offered, topic.placement.held())
            if plan.placement.missing < topic.placement.missing:
                change = TopicChange(spec=topic.spec, plan=plan, reason="brokers changed")
                await apply_topic_change(self._state, self._room, change)
            self._tried_on[name] = offered

    async def _plan_without(self, topic: Topic, name: str) -> TopicPlan:
        """Other places for the publishers on ``name``."""
        offered = self._room.offered(topic.spec, without=name)
        return await self._plan_rest(topic, offered, topic.placement.held(without={name}), without=name)

    async def _plan_rest(
        self, topic: Topic, offered: Sequence[BrokerCapacity], held: Sequence[str | None], without: str = ""
    ) -> TopicPlan:
        homes = await self._room.homes(topic.spec)
        place = partial(planner.place_rest, topic.spec, topic.burst, offered, held, homes)
        plan = await trio.to_thread.run_sync(place)
        return planner.with_pinned(plan, self._state.pins.of(topic.name, {without, *self._state.dead_brokers()}))
