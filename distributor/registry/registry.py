"""The book as operators, brokers, fittings and the adaptor change it; ``distributor.registry.state`` says how it is
kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import trio

from distributor.model.cluster import FittingRecord, Placement, Topic
from distributor.model.columns import ROUNDING
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.model.incarnations import check_succession
from distributor.placement import planner, reasons
from distributor.placement import proposals as adapting
from distributor.placement.shares import has_token_for, with_declared_split
from distributor.registry.broker_updates import (
    Heard,
    News,
    concerned,
    has_part,
    heard,
    is_acknowledgement,
    same_demand,
    same_principles,
)
from distributor.registry.maintenance import Upkeep
from distributor.storage.topic_rows import NO_PUBLISHERS
from srtm.control import ProposalResult, ProposalResults, ShareProposal
from srtm.errors import BadInput, Conflict, SrtmError
from srtm.topics.capacity import Capacity
from srtm.topics.spec import TopicSpec

_FLUX_S = 3.0  # aware publishers have moved by then
_LARGEST_CLAIM = 2**62  # a version that a broker may say it has; beyond 2**63 the store could not count on

FittingIntent = Callable[[TopicSpec], FittingRecord | None]  # None: nothing new


def not_fitted(_spec: TopicSpec) -> FittingRecord | None:
    return None


class Registry(Upkeep):
    """``brokers`` and ``topics`` may be read at any time; everything else goes through the methods."""

    # What an operator asks for

    async def submit(self, spec: TopicSpec, *, create_only: bool = False, fitting: FittingIntent = not_fitted) -> Topic:
        """Create or change a topic. The same spec again changes nothing. ``fitting``: what is stored with it, so that
        whoever leads next fits it. Raises Conflict, BadInput."""
        await self.wait_settled()
        async with self._placing:
            old = self.managed_topic(spec.name)
            if old is None:
                return await self._replace_topic(spec, *await self.dry_run(spec), "submitted", record=fitting(spec))
            if create_only:
                raise Conflict("name", spec.name, "a topic of this name exists: PUT changes it")
            if old.spec == spec:
                return old
            sized = await trio.to_thread.run_sync(planner.with_burst, spec, old)
            burst = planner.burst_of(sized)
            if same_demand(old, spec, burst):
                placed = burst, old.placement, old.reasons
            else:
                placed = await self._planned(sized)
            return await self._replace_topic(spec, *placed, "changed", record=fitting(spec))

    async def dry_run(self, spec: TopicSpec) -> tuple[float, Placement, tuple[str, ...]]:
        """What ``submit`` would do: burst, placement, reasons. Nothing is changed.

        Publishers that the topic has already move as little as its principles allow, unless those are others now.
        """
        await self.wait_settled()
        return await self._planned(await trio.to_thread.run_sync(planner.with_burst, spec, self.topics.get(spec.name)))

    async def _planned(self, spec: TopicSpec) -> tuple[float, Placement, tuple[str, ...]]:
        """``spec``: with a number for its burst."""
        old, offered = self.managed_topic(spec.name), self.offered(spec)
        if old is None or not same_principles(old.spec, spec):
            return await trio.to_thread.run_sync(planner.place_anew, spec, offered)
        held = [old.placement.broker_of(publisher_id) for publisher_id in spec.publishers.ids]
        return await trio.to_thread.run_sync(planner.place_again, spec, offered, held)

    async def change_publishers(
        self, name: str, change: Callable[[TopicSpec], TopicSpec], fitting: FittingIntent = not_fitted
    ) -> Topic:
        """``change`` (in a thread) adds and removes publishers, or changes their rates; few of those that stay move.
        ``fitting``: as in ``submit``. Raises NotFound, and what ``change`` raises."""
        await self.wait_settled()
        async with self._placing:
            old = self.topic(name)
            spec = await trio.to_thread.run_sync(change, old.spec)  # of many publishers: a second and more
            if spec == old.spec:
                return old
            return await self._replace_topic(
                spec, *await self.dry_run(spec), "publishers changed", record=fitting(spec)
            )

    async def set_options(self, name: str, change: Callable[[TopicSpec], TopicSpec]) -> Topic:
        """``change`` the mode, the split or the adaptation; shares move only where the new mode or split says so at
        once. Raises NotFound, and what ``change`` raises."""
        async with self._placing, self._writing:
            old, version = self.topic(name), self.version + 1
            spec = change(old.spec)
            if spec == old.spec:
                return old
            leases = old.leases
            if adapting.splits_anew(old.spec, spec):
                leases = with_declared_split(replace(old, spec=spec), self.absent(), self.held_now(old)).leases
            leases = adapting.pooled_if_due(spec, leases).advanced(self.live(), version)
            new = replace(old, spec=spec, version=version, leases=leases)
            await self._commit([new], decision=adapting.options_line(old.spec, spec))
            return new

    async def remove(self, name: str, *, purge: bool) -> None:
        """Take the placement and the limit away; with ``purge`` the queued messages too. Raises NotFound."""
        async with self._placing, self._writing:
            old, version = self.topic(name), self.version + 1
            new = Topic(
                spec=replace(old.spec, publishers=NO_PUBLISHERS),
                version=version,
                placement=Placement(publishers=NO_PUBLISHERS, brokers=(), at=np.zeros(0, dtype=np.int64)),
                assignment_version=version,
                leases=old.leases.closed(),
                removed=True,
                purged=purge,
            )
            await self._commit([new], decision="removed with its messages" if purge else "removed")

    async def drain(self, name: str, *, force: bool) -> None:
        """Take a broker out of service: its publishers go to the others now, its tokens once it has no use for them.
        Again changes nothing. Raises NotFound, Conflict (it is not heard from; the others lack capacity, which
        ``force`` puts up with)."""
        await self.wait_settled()
        async with self._placing:
            self.broker(name)
            if name in self.draining:
                return
            if not self.is_alive(name):
                raise Conflict("broker", name, "is not heard from, so it cannot be drained")
            lacking = {} if force else await self._lacking_without(name)
            if lacking:
                raise Conflict("broker", name, f"{reasons.no_room_for(lacking)}; --force drains it anyway")
            async with self._writing:
                await self._commit([], draining={name: True})
            await self._move_publishers_off(name)

    async def take_share(self, name: str, broker: str) -> None:
        """``broker`` drains and has no more use for its tokens of topic ``name``: the others get them once it has
        acknowledged that."""
        async with self._writing:
            topic = self.topics[name]
            if topic.removed or broker in topic.placement.brokers or broker not in topic.leases.target:
                return
            what = f"{broker} is drained of this topic: its share goes to the others"
            await self._reshare(topic, what, extra=[one for one in topic.extra_brokers if one != broker])

    async def note_capacity(self, name: str, figure: Capacity) -> None:
        """What ``name`` carries of one promise and class, instead of what was known of that. Raises NotFound."""
        async with self._writing:
            self.broker(name)
            others = [one for one in self.capacities.get(name, ()) if one.key != figure.key]
            await self._commit([], capacities={name: (*others, figure)})
        self._attention.set()

    async def forget_capacities(self, name: str) -> None:
        """Only what its operator states counts then. Raises NotFound."""
        async with self._writing:
            self.broker(name)
            await self._commit([], capacities={name: ()})
        self._attention.set()

    async def forget(self, name: str) -> None:
        """Drop a broker that is proven dead, or has nothing. Raises NotFound, Conflict."""
        await self.wait_settled()
        incarnation = self.broker(name).incarnation
        self._check_is_to_forget(name, incarnation)
        await self._bury(name)
        async with self._placing, self._writing:  # it may have come back, or got something, meanwhile
            self._check_is_to_forget(name, incarnation)
            await self._commit([], forgotten=name)

    def _check_is_to_forget(self, name: str, incarnation: str) -> None:
        broker = self.broker(name)
        if broker.incarnation != incarnation:
            raise Conflict("broker", name, f"has come back, as incarnation {broker.incarnation}")
        if not broker.dead and any(has_part(topic, name) for topic in self.topics.values()):
            rule = "has publishers or tokens and is not proven dead: stop it and POST its incarnation to .../dead first"
            raise Conflict("broker", name, rule)

    # What the adaptor proposes

    async def adapt(self, proposals: Sequence[ShareProposal]) -> ProposalResults:
        """Aim at the shares that the adaptor proposes: what is stale or makes no sense is refused, the rest taken."""
        async with self._writing:
            version, live = self.version + 1, self.live()
            results: list[ProposalResult] = []
            changed: dict[str, Topic] = {}
            log: dict[str, adapting.ShareChange] = {}
            for proposal in proposals:
                try:
                    topic = changed.get(proposal.topic) or self.topic(proposal.topic)
                    if topic.name in self.being_fitted:
                        raise Conflict("topic", topic.name, "is being fitted: its shares belong to that")
                    target = adapting.checked_target(topic, proposal, self.most_rate)
                except SrtmError as error:
                    results.append(ProposalResult(topic=proposal.topic, taken=False, problem=str(error)))
                    continue
                results.append(ProposalResult(topic=proposal.topic, taken=True))
                leases = topic.leases.retargeted(topic.leases.envelope, target).advanced(live, version)
                changed[topic.name] = replace(topic, leases=leases)
                log[topic.name] = adapting.change_of(proposal, target, self._wall_ns())
            if changed:
                await self._commit(list(changed.values()))
                for name, change in log.items():
                    self.share_change_counts[name] += 1
                    self.share_changes[name] = adapting.with_change(self.share_changes, name, change)
        return ProposalResults(results=results)

    # What fittings and relief do

    async def arrange(
        self, name: str, assignment_version: int, placement: Placement, what: str, found: CapacityCaps = NO_CAPS
    ) -> Topic:
        """Place a topic that is being fitted. ``found``: what the fitting found full; that its own publishers leave
        such a broker now lifts no mark. Raises NotFound, Conflict (others have placed it anew meanwhile, a broker that
        is new to it takes nobody any more: whoever is buried now would keep what came after; or one that gets more of
        it has no room for that any more)."""
        async with self._placing:
            topic = self.topic(name)
            if topic.assignment_version != assignment_version:
                raise Conflict("assignment_version", assignment_version, f"is {topic.assignment_version} by now")
            refusing = {*placement.brokers} - {*topic.placement.brokers} - self.takes_more()
            if refusing:
                raise Conflict("broker", ", ".join(sorted(refusing)), "takes no publishers now")
            overfull = self.overfull(topic, placement, ignore_caps=True)
            if overfull:
                raise Conflict("broker", ", ".join(overfull), "has no room for so many of its publishers now")
            self.arranged_s[name] = trio.current_time()
            held_to = self.held_to(topic.spec, placement, self.caps.merged(found))
            lines = reasons.reasons_after_fitting_step(topic.reasons, placement, topic.placement, held_to)
            return await self._replace_topic(
                topic.spec, topic.burst, placement, lines, what, asked_for=False, fitting=True, found=found
            )

    def overfull(self, topic: Topic, placement: Placement, *, ignore_caps: bool = False) -> list[str]:
        """Brokers that get more of ``topic`` by ``placement``, and more than they have room for: other topics may have
        come since that was planned. ``ignore_caps``: as in ``offered``."""
        rooms = {one.name: one.rcap for one in self.offered(topic.spec, ignore_caps=ignore_caps)}
        now = topic.placement.assigned
        return sorted(
            name
            for name, rate in placement.assigned.items()
            if rate > max(rooms.get(name, 0.0), now.get(name, 0.0)) + ROUNDING
        )

    def is_in_flux(self, name: str) -> bool:
        """Whether publishers of topic ``name`` are moving just now because of its fitting. Shares are where they will
        be; what is counted elsewhere meanwhile says nothing."""
        return trio.current_time() < self.arranged_s.get(name, -math.inf) + _FLUX_S

    async def note_full(self, name: str, found: CapacityCaps) -> None:
        """The fitting of topic ``name``, if that is still there, has found brokers full."""
        async with self._writing:
            if self.managed_topic(name) is not None:
                await self._commit([], found=found)

    async def note_fitting(self, record: FittingRecord, *, decision: str = "", found: CapacityCaps = NO_CAPS) -> None:
        """``found``: brokers that it found full. A topic that was removed has no fitting."""
        async with self._writing:
            topic = self.managed_topic(record.topic)
            if topic is None:
                return
            await self._commit([topic] if decision else [], decision=decision, found=found, fitting=record)

    async def relocate(self, name: str, to: Mapping[str, str], why: str) -> bool:
        """Publishers of topic ``name`` belong to other brokers from now on: {publisher: broker}. False, and nothing is
        changed: they are not its own any more, or such a broker takes nobody, or has no room for them now."""
        async with self._placing:
            topic = self.managed_topic(name)
            if topic is None or not set(to.values()) <= self.takes_more():
                return False
            if not to.keys() <= topic.spec.publishers.positions.keys():
                return False
            placement = topic.placement.moved(to)
            if self.overfull(topic, placement):
                return False
            lines = reasons.reasons_after_move(topic.reasons, placement, topic.placement)
            await self._replace_topic(topic.spec, topic.burst, placement, lines, why, asked_for=False)
            return True

    async def note(self, name: str, text: str) -> None:
        """An entry of the decision log of topic ``name``, if it is there."""
        async with self._writing:
            topic = self.managed_topic(name)
            if topic is not None:
                await self._commit([topic], decision=text)

    # What a broker says

    async def hear(self, news: News) -> None:
        """Take in what a broker presents of itself. Raises Conflict for an incarnation that is not the latest, and for
        another broker of the same name."""
        async with self._writing:
            broker = news.broker
            old = self.brokers.get(broker.name)
            if old is not None:
                check_succession(old, broker, in_use=partial(self._is_in_use, old.name))
            ahead = max(news.have_version, max(news.applied.values(), default=0))
            if ahead > max(self.version, _LARGEST_CLAIM):
                raise BadInput("have_version", ahead, f"must be at most {_LARGEST_CLAIM}: no cluster counts so far")
            store_is_older = news.have_version > self.desired_version(broker.name) or ahead > self.version
            if store_is_older:  # than what the broker was told: never hand out a version twice
                self.version = max(self.version, ahead)
                self._desired_version.pop(broker.name, None)
                self.differences.forget(broker.name)
            reborn = old is not None and broker.incarnation != old.incarnation
            live, came_back = self.live() | {broker.name}, old is not None and old.dead
            still_dead = self.absent() - {broker.name} if came_back else None
            topics, last, changes = self.topics, self._heard.get(broker.name), self.topic_changes.count
            others = self.topic_changes.since(last.changes) if last is not None else ()
            changed = [
                new
                for topic in concerned(last, news, topics, others, self.removed)
                if (
                    new := heard(
                        topic, news, self.version + 1, live, reborn=reborn, still_dead=still_dead, most=self.held_now
                    )
                )
                is not topic
            ]
            acknowledged = broker == old and all(is_acknowledgement(topics[new.name], new) for new in changed)
            if acknowledged and not store_is_older:
                self._show_acknowledged(changed)
            else:
                back = {broker.name: False} if reborn and broker.name in self.draining else {}
                what = f"{broker.name} is back from the dead" if came_back else ""
                await self._commit(changed, [broker], draining=back, decision=what)
            self._heard[broker.name] = Heard(news, changes)
            self.liveness.hear(broker.name, 0.0)  # before anybody may look whether its leases are over
        if broker != old:
            self._grace_ends.pop(broker.name, None)
            self._attention.set()

    async def declare_dead(self, name: str, incarnation: str) -> None:
        """Proof of death of one incarnation: its tokens are free at once, its publishers keep their places for the
        grace. It is not heard again. Raises NotFound, Conflict (another incarnation is known)."""
        async with self._writing:
            broker = self.broker(name)
            if broker.incarnation != incarnation:
                rule = f"broker {name} is known as incarnation {broker.incarnation}"
                raise Conflict("incarnation", incarnation, rule)
            if not broker.dead:
                await self._free(replace(broker, dead=True))
        self._grace_ends.setdefault(name, trio.current_time() + self.config.rejoin_grace_s)
        self._attention.set()

    async def share_with(self, name: str, broker: str) -> None:
        """Messages wait on ``broker``, which has no share of the topic: give it a small one, if there is a token for
        it."""
        async with self._writing:
            topic = self.topics[name]
            if topic.removed or broker in topic.leases.target or not has_token_for(topic, broker):
                return
            why = f"{broker}: messages of publishers that the topic does not name wait there; it gets a small share"
            await self._reshare(topic, why, extra=[*topic.extra_brokers, broker])

    async def account(self, name: str, broker: str, homes: Mapping[str, float]) -> None:
        """So many msg/s come to ``broker`` from publishers of topic ``name`` that belong elsewhere: shares follow.
        ``homes``: {broker that they belong to: msg/s}; empty: they have gone."""
        async with self._writing:
            topic = self.topics[name]
            misplaced = {**topic.misplaced, broker: homes} if homes else {**topic.misplaced}
            if not homes:
                misplaced.pop(broker, None)
            if topic.removed or misplaced == topic.misplaced or (homes and not has_token_for(topic, broker)):
                return
            what = f"{broker}: {sum(homes.values()):,.6g} msg/s of publishers that belong elsewhere count there"
            what = what if homes else f"{broker}: those who moved away have gone"
            counted = replace(topic, misplaced=misplaced)
            await self._reshare(
                counted, what, extra=[one for one in topic.extra_brokers if one not in misplaced], keep=True
            )

    # How it is done

    async def _reshare(self, topic: Topic, what: str, *, extra: Sequence[str], keep: bool = False) -> None:
        """Its declared split anew, over its publishers, misplaced ones, and ``extra``. ``keep``: adapted shares
        stay, if the same brokers have one. Under ``_writing``."""
        target = with_declared_split(topic, self.absent(), self.held_now(topic), extra).leases.target
        target = adapting.kept(topic, target) if keep else target
        leases = adapting.pooled_if_due(topic.spec, topic.leases.retargeted(topic.leases.envelope, target))
        leases = leases.advanced(self.live(), self.version + 1)
        text = "\n".join([what, *reasons.share_lines(target)])
        await self._commit([replace(topic, leases=leases)], decision=text)

    def _is_in_use(self, name: str) -> bool:
        """It is heard from, or has publishers or tokens."""
        return self.is_alive(name) or any(has_part(topic, name) for topic in self.topics.values())

    async def _lacking_without(self, name: str) -> dict[str, float]:
        """{topic: msg/s for which there would be no room if ``name`` were not there}. Under ``_placing``; nothing is
        changed."""
        topics, lacking = dict(self.topics), {}
        for topic in self._placed_on(name):
            offered = self.offered(topic.spec, topics, without=name)
            held = topic.placement.held(without={name})
            placement, _ = await trio.to_thread.run_sync(planner.place_rest, topic.spec, topic.burst, offered, held)
            topics[topic.name] = replace(topic, placement=placement)
            if placement.missing > topic.placement.missing:
                lacking[topic.name] = placement.missing - topic.placement.missing
        return lacking
