"""What happens to the book by itself: what the dead had is free, and after their grace they are buried; what lapsed
goes to others, shares move on, what found no room is placed when brokers have come."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import trio

from distributor.model.cluster import Broker, Topic
from distributor.placement import planner
from distributor.placement.shares import after_death
from distributor.registry.broker_updates import has_part
from distributor.registry.state import Book
from srtm.errors import Unavailable
from srtm.topics.lease import MARGIN_MS

_PERIOD_S = 1.0  # how soon the silence of a broker is noticed


class Upkeep(Book):
    """``run`` it once."""

    async def run(self) -> None:
        """Until cancelled: bury the dead after their grace, move shares on, place what found no room when brokers have
        come."""
        for name, broker in self.brokers.items():
            if broker.dead:
                self._grace_ends.setdefault(name, trio.current_time() + self.config.rejoin_grace_s)
        while True:
            try:
                await self._look_after()
            except Unavailable as error:  # the store: nothing was changed, and the next turn tries again
                self._log.warning("not looked after", reason=error)
            with trio.move_on_after(_PERIOD_S):
                await self._attention.wait()
            self._attention = trio.Event()

    async def _look_after(self) -> None:
        """Once. Raises Unavailable."""
        await self._take(self.store_acknowledged)
        if not self.is_settled():
            await self._take(self._advance)
            return
        now_s = trio.current_time()
        for name, ends_s in [(name, ends_s) for name, ends_s in self._grace_ends.items() if ends_s <= now_s]:
            await self._take(partial(self._end_grace, name, ends_s))
        await self._take(self._free_what_lapsed)
        for name in self.draining & self.brokers.keys():  # what was begun before a restart, or failed
            await self._take(partial(self._drain_again, name))
        await self._take(self._advance)
        for topic in self.managed():
            if topic.placement.missing > 0 and topic.name not in self.being_fitted:
                await self._take(partial(self._place_rest, topic.name))

    async def _take(self, step: Callable[[], Awaitable[None]]) -> None:
        """A defect that one step meets ends neither the others nor the leader: the next leader would meet it too.
        Raises Unavailable."""
        try:
            await step()
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001
            self._log.failure("a step of the upkeep is defective", trace=traceback.format_exc())

    async def _end_grace(self, name: str, ends_s: float) -> None:
        await self._bury(name)
        if self._grace_ends.get(name) == ends_s:  # else it has come back meanwhile, and died again
            self._grace_ends.pop(name)

    async def _drain_again(self, name: str) -> None:
        async with self._placing:
            await self._move_publishers_off(name)

    async def _free_what_lapsed(self) -> None:
        """What a silent broker had under a timed lease goes to others, with its publishers, once that lease is over. As
        long as nobody else is heard either, it is this distributor that is cut off, and nothing is gained by a move."""
        async with self._placing:
            for topic in list(self.topics.values()):
                for name in topic.leases.lapsed(self._silent_ms):
                    if self._others_are_heard(name):
                        what = f"{name} was not heard from for longer than its lease of {topic.spec.lease}"
                        await self._bury_in(self.topics[topic.name], name, what)

    def _others_are_heard(self, name: str) -> bool:
        others = self.live() - {name}
        return any(self.liveness.steady_s(other) * 1000 >= MARGIN_MS for other in others)

    async def _advance(self) -> None:
        async with self._writing:
            live, topics = self.live(), self.topics
            before, was_live = self._advanced
            unmoved = before if was_live == live else {}  # then, too, there was nothing to issue
            changed = [
                replace(topic, leases=leases)
                for topic in self.managed()
                if unmoved.get(topic.name) is not topic
                and (leases := topic.leases.advanced(live, self.version + 1)) is not topic.leases
            ]
            if changed:
                await self._commit(changed)
            self._advanced = topics, live

    async def _place_rest(self, name: str) -> None:
        async with self._placing:
            topic = self.topics[name]
            offered = self.offered(topic.spec)
            if topic.removed or self._tried_on.get(name) == offered:
                return
            work = partial(planner.place_rest, topic.spec, topic.burst, offered, topic.placement.held())
            placement, reasons = await trio.to_thread.run_sync(work)
            if placement.missing < topic.placement.missing:
                await self._replace_topic(
                    topic.spec, topic.burst, placement, reasons, "brokers changed", asked_for=False
                )
            self._tried_on[name] = offered

    async def _move_publishers_off(self, name: str) -> None:
        """Under ``_placing``."""
        for topic in self._placed_on(name):
            offered, held = self.offered(topic.spec, without=name), topic.placement.held(without={name})
            work = partial(planner.place_rest, topic.spec, topic.burst, offered, held)
            placement, reasons = await trio.to_thread.run_sync(work)
            what = f"{name} is drained"
            await self._replace_topic(topic.spec, topic.burst, placement, reasons, what, asked_for=False, leaving=name)

    async def _free(self, dead: Broker) -> None:
        """What ``dead`` had goes to the others, whose shares need no plan for that. Under ``_writing``."""
        name, live, version = dead.name, self.live() - {dead.name}, self.version + 1
        freed = [
            after_death(topic, name, self.absent() | {name}, self.held_now(topic))
            for topic in self.topics.values()
            if name in topic.leases.holdings or name in topic.leases.target
        ]
        advanced = [
            topic if topic.removed else replace(topic, leases=topic.leases.advanced(live, version)) for topic in freed
        ]
        grace = f"its publishers keep their places for {self.config.rejoin_grace_s:g} s"
        await self._commit(advanced, [dead], decision=f"{name} died: its tokens go to the others, {grace}")

    async def _bury(self, name: str) -> None:
        """``name`` is dead for good: its publishers go to others."""
        async with self._placing:
            for topic in [topic for topic in self.topics.values() if has_part(topic, name)]:
                await self._bury_in(topic, name, f"{name} died")

    async def _bury_in(self, topic: Topic, name: str, what: str) -> None:
        if topic.removed:
            async with self._writing:
                now = self.topics[topic.name]
                if self._is_gone(name, now):
                    await self._commit([replace(now, leases=now.leases.freed(name))])
            return
        offered = self.offered(topic.spec, without=name)
        placement, reasons = topic.placement, topic.reasons
        if name in placement.brokers:
            work = partial(planner.place_rest, topic.spec, topic.burst, offered, placement.held(without={name}))
            placement, reasons = await trio.to_thread.run_sync(work)
        await self._replace_topic(topic.spec, topic.burst, placement, reasons, what, asked_for=False, dead=name)
