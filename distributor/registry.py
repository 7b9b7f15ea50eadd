"""The distributor's one book: brokers and topics, versions, who is told what. Loads from the store at its start;
stores before it tells.

Concurrency. Values are immutable and replaced in ``_commit`` only, which stores them first, under the short lock
``_writing``. What plans (and may take seconds in a worker thread) holds ``_placing`` besides: only it changes specs and
placements, so a plan made outside ``_writing`` still holds when it is committed; leases and brokers may have moved on
meanwhile and are read afresh. A method that raises has changed nothing.

Versions are one counter for everything: of specs, placements, shares and desired states. It only grows, and it is
stored with what it numbers.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np
import trio

from distributor import adapting, desired, placing, records
from distributor.allocation import BrokerCapacity
from distributor.config import DistributorConfig
from distributor.leases import Amount, Leases
from distributor.liveness import Liveness
from distributor.marks import FullMarks
from distributor.records import NO_PUBLISHERS, Stored
from distributor.state import Broker, Decision, FittingRecord, Placement, Topic
from distributor.store import Replace, Store
from distributor.transitions import News, has_part, heard, lifted, same_demand, same_principles
from srtm.capacity import Capacity
from srtm.control import ProposalResult, ProposalResults, ShareProposal
from srtm.errors import BadInput, Conflict, NotFound, SrtmError, Unavailable
from srtm.lease import MARGIN_MS
from srtm.log import Log
from srtm.splitting import to_micro
from srtm.topic import TopicSpec

_PERIOD_S = 1.0  # how soon the silence of a broker is noticed
_FLUX_S = 3.0  # aware publishers have moved by then
_LARGEST_CLAIM = 2**62  # a version that a broker may say it has; beyond 2**63 the store could not count on


class Registry:
    """See the module. ``brokers`` and ``topics`` may be read at any time; everything else goes through the methods."""

    def __init__(self, store: Store, config: DistributorConfig, *, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.config = config
        self.brokers: dict[str, Broker] = {}
        self.topics: dict[str, Topic] = {}  # removed ones too
        self.decisions: dict[str, list[Decision]] = {}  # oldest first
        self.capacities: dict[str, tuple[Capacity, ...]] = {}  # {broker: each of another promise or class}
        self.share_changes: dict[str, tuple[adapting.ShareChange, ...]] = {}  # of each topic, by the adaptor, lately
        self.share_change_counts: Counter[str] = Counter()  # by topic, since the start
        self.draining: set[str] = set()  # brokers that get nothing new, give up what they have, and end
        self.liveness = Liveness(config.liveness_s)
        self.fittings: dict[str, FittingRecord] = {}  # {topic: of its latest}
        self.arranged_s: dict[str, float] = {}  # {topic: trio time at which its fitting placed it last}
        self.being_fitted: set[str] = set()  # topics for whose publishers nobody else looks for a place
        self.marks = FullMarks()
        self.version = 0
        self.leads = True  # a standby shows what is stored, and hears no broker
        self.leader_url: str | None = None  # known to standbys
        self._desired_version: dict[str, int] = {}  # {broker: version of its desired state}
        self._changed: dict[str, trio.Event] = {}  # {broker: set when its desired state changes}
        self._attention = trio.Event()  # something for ``run`` to look at
        self._tried_on: dict[str, list[BrokerCapacity]] = {}  # {topic: brokers on which the rest of it found no room}
        self._grace_ends: dict[str, float] = {}  # {dead broker: trio time after which its publishers go elsewhere}
        self._store = store
        self._wall_ns = wall_ns
        self._log = Log("distributor")
        self._writing = trio.Lock()
        self._placing = trio.Lock()

    @classmethod
    async def load(cls, store: Store, config: DistributorConfig) -> Self:
        """Raises Unavailable."""
        registry = cls(store, config)
        registry.show(await records.load(store))
        return registry

    def show(self, stored: Stored) -> None:
        """``stored`` instead of everything that was here."""
        self.version, self.brokers = stored.version, dict(stored.brokers)
        self.topics, self.decisions = dict(stored.topics), dict(stored.decisions)
        self.capacities = dict(stored.capacities)
        self.draining = set(stored.draining)
        self.liveness = Liveness(self.config.liveness_s)
        self.fittings, self.marks = dict(stored.fittings), stored.marks
        self._desired_version = dict.fromkeys(stored.brokers, stored.version)

    # Reading

    def topic(self, name: str) -> Topic:
        """Raises NotFound."""
        topic = self.topics.get(name)
        if topic is None or topic.removed:
            raise NotFound("topic", name)
        return topic

    def managed(self) -> list[Topic]:
        return [topic for topic in self.topics.values() if not topic.removed]

    def broker(self, name: str) -> Broker:
        """Raises NotFound."""
        if name not in self.brokers:
            raise NotFound("broker", name)
        return self.brokers[name]

    def is_alive(self, name: str) -> bool:
        """Heard from lately, and not proven dead since."""
        return name in self.brokers and not self.brokers[name].dead and self.liveness.is_heard(name)

    def live(self) -> set[str]:
        return {name for name in self.brokers if self.is_alive(name)}

    def takes_more(self) -> set[str]:
        """Brokers that may be given publishers."""
        return {name for name in self.live() - self.draining if self.brokers[name].accepting}

    def is_settled(self) -> bool:
        """Whether it is known which brokers live: right after a start nobody was heard, and a plan made then would put
        a topic onto none."""
        return self.liveness.all_heard(self._expected())

    async def wait_settled(self) -> None:
        await self.liveness.wait_all_heard(self._expected)

    def _expected(self) -> set[str]:
        return {name for name, broker in self.brokers.items() if not broker.dead}

    def desired_version(self, broker: str) -> int:
        return self._desired_version.get(broker, self.version)

    def changed(self, broker: str) -> trio.Event:
        """Set when what ``broker`` is told changes, or a move for it may have become due."""
        return self._changed.setdefault(broker, trio.Event())

    def offered(
        self, spec: TopicSpec, topics: Mapping[str, Topic] | None = None, *, without: str = ""
    ) -> list[BrokerCapacity]:
        """The brokers, and what is left of them for the topic that ``spec`` asks for. ``topics``: instead of those that
        there are."""
        book = self.topics if topics is None else topics
        brokers = [broker for name, broker in self.brokers.items() if name != without]
        return placing.capacities(brokers, self.takes_more(), book.values(), spec, self.capacities)

    def stir(self, broker: str) -> None:
        """There may be something to tell ``broker`` that is not in the book: a move, a measurement."""
        self._changed.pop(broker, trio.Event()).set()

    # What an operator asks for

    async def submit(self, spec: TopicSpec, *, create_only: bool = False) -> Topic:
        """Create or change a topic. The same spec again changes nothing. Raises Conflict, BadInput."""
        await self.wait_settled()
        async with self._placing:
            old = self.topics.get(spec.name)
            if old is None or old.removed:
                return await self._replace_topic(spec, *await self.dry_run(spec), "submitted")
            if create_only:
                raise Conflict("name", spec.name, "a topic of this name exists: PUT changes it")
            if old.spec == spec:
                return old
            burst = await trio.to_thread.run_sync(placing.burst_of, spec)
            if same_demand(old, spec, burst):
                return await self._replace_topic(spec, burst, old.placement, old.reasons, "changed")
            return await self._replace_topic(spec, *await self.dry_run(spec), "changed")

    async def dry_run(self, spec: TopicSpec) -> tuple[float, Placement, tuple[str, ...]]:
        """What ``submit`` would do: burst, placement, reasons. Nothing is changed.

        Publishers that the topic has already move as little as its principles allow, unless those are others now.
        """
        await self.wait_settled()
        old, offered = self.topics.get(spec.name), self.offered(spec)
        if old is None or old.removed or not same_principles(old.spec, spec):
            return await trio.to_thread.run_sync(placing.place_anew, spec, offered)
        held = [old.placement.broker_of(publisher_id) for publisher_id in spec.publishers.ids]
        return await trio.to_thread.run_sync(placing.place_again, spec, offered, held)

    async def change_publishers(self, name: str, change: Callable[[TopicSpec], TopicSpec]) -> Topic:
        """``change`` adds and removes publishers, or changes their rates; few of those that stay move. Raises
        NotFound, and what ``change`` raises."""
        await self.wait_settled()
        async with self._placing:
            old = self.topic(name)
            spec = change(old.spec)
            if spec == old.spec:
                return old
            return await self._replace_topic(spec, *await self.dry_run(spec), "publishers changed")

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
                envelope = leases.envelope
                target = placing.shares(spec, envelope, old.placement, old.extra, placing.besides(old.astray))
                leases = leases.retargeted(envelope, target)
            leases = adapting.pooled_if_due(spec, leases).advanced(self.live(), version)
            new = replace(old, spec=spec, version=version, leases=leases)
            await self._commit([new], decision=adapting.options_line(old.spec, spec))
            return new

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
                    target = adapting.checked_target(topic, proposal)
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
            gone = [records.fitting_change(name, None)]
            await self._commit([new], decision="removed with its messages" if purge else "removed", besides=gone)
            self.fittings.pop(name, None)

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
                where = ", ".join(f"{topic} {rate:,.6g} msg/s" for topic, rate in lacking.items())
                raise Conflict("broker", name, f"the other brokers have no room for: {where}; --force drains it anyway")
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
            envelope = topic.leases.envelope
            extra = [one for one in topic.extra if one != broker]
            target = placing.shares(topic.spec, envelope, topic.placement, extra, placing.besides(topic.astray))
            leases = topic.leases.retargeted(envelope, target).advanced(self.live(), self.version + 1)
            what = f"{broker} is drained of this topic: its share goes to the others"
            await self._commit(
                [replace(topic, leases=leases)], decision="\n".join([what, *placing.share_lines(target)])
            )

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

    async def arrange(self, name: str, assignment_version: int, placement: Placement, what: str) -> Topic:
        """Place a topic that is being fitted. Raises NotFound, Conflict (others have placed it anew meanwhile)."""
        async with self._placing:
            topic = self.topic(name)
            if topic.assignment_version != assignment_version:
                raise Conflict("assignment_version", assignment_version, f"is {topic.assignment_version} by now")
            self.arranged_s[name] = trio.current_time()
            return await self._replace_topic(
                topic.spec, topic.burst, placement, topic.reasons, what, asked_for=False, fitting=True
            )

    def is_in_flux(self, name: str) -> bool:
        """Whether publishers of topic ``name`` are moving just now because of its fitting. Shares are where they will
        be; what is counted elsewhere meanwhile says nothing."""
        return trio.current_time() < self.arranged_s.get(name, -math.inf) + _FLUX_S

    async def note_fitting(self, record: FittingRecord, *, decision: str = "", marks: FullMarks | None = None) -> None:
        """``marks``: all there are from now on. A topic that was removed has no fitting."""
        async with self._writing:
            topic = self.topics.get(record.topic)
            if topic is None or topic.removed:
                return
            besides = [records.fitting_change(record.topic, record)]
            await self._commit([topic] if decision else [], decision=decision, besides=besides, marks=marks)
            self.fittings[record.topic] = record

    async def forget(self, name: str) -> None:
        """Drop a broker that is proven dead, or has nothing. Raises NotFound, Conflict."""
        await self.wait_settled()
        broker = self.broker(name)
        if not broker.dead and any(has_part(topic, name) for topic in self.topics.values()):
            rule = "has publishers or tokens and is not proven dead: stop it and POST its incarnation to .../dead first"
            raise Conflict("broker", name, rule)
        await self._bury(name, forget=True)

    # What a broker says

    async def hear(self, news: News) -> None:
        """Take in what a broker presents of itself. Raises Conflict for an incarnation that is not the latest, and for
        another broker of the same name."""
        async with self._writing:
            broker = news.broker
            old = self.brokers.get(broker.name)
            if old is not None:
                self._check_succession(old, broker)
            ahead = max([news.have_version, *news.applied.values()])
            if ahead > max(self.version, _LARGEST_CLAIM):
                raise BadInput("have_version", ahead, f"must be at most {_LARGEST_CLAIM}: no cluster counts so far")
            store_is_older = news.have_version > self.desired_version(broker.name) or ahead > self.version
            if store_is_older:  # than what the broker was told: never hand out a version twice
                self.version = max(self.version, ahead)
                self._desired_version.pop(broker.name, None)
            reborn = old is not None and broker.incarnation != old.incarnation
            live = self.live() | {broker.name}
            changed = [
                new
                for topic in self.topics.values()
                if (new := heard(topic, news, self.version + 1, live, reborn=reborn)) is not topic
            ]
            if changed or broker != old or store_is_older:
                back = {broker.name: False} if reborn and broker.name in self.draining else {}
                await self._commit(changed, [broker], draining=back)
            self.liveness.hear(broker.name, 0.0)  # before anybody may look whether its leases are over
        if broker != old:
            self._grace_ends.pop(broker.name, None)
            self._attention.set()

    async def declare_dead(self, name: str, incarnation: str) -> None:
        """Proof of death of one incarnation. Raises NotFound, Conflict (another incarnation is known)."""
        async with self._writing:
            broker = self.broker(name)
            if broker.incarnation != incarnation:
                rule = f"broker {name} is known as incarnation {broker.incarnation}"
                raise Conflict("incarnation", incarnation, rule)
            if not broker.dead:
                await self._commit([], [replace(broker, dead=True)])
        self._grace_ends.setdefault(name, trio.current_time() + self.config.rejoin_grace_s)
        self._attention.set()

    async def share_with(self, name: str, broker: str) -> None:
        """Messages wait on ``broker``, which has no share of the topic: give it a small one, if there is a token for
        it."""
        async with self._writing:
            topic = self.topics[name]
            if topic.removed or broker in topic.leases.target or not placing.room_for_extra(topic, broker):
                return
            envelope, more = topic.leases.envelope, placing.besides(topic.astray)
            target = placing.shares(topic.spec, envelope, topic.placement, [*topic.extra, broker], more)
            leases = topic.leases.retargeted(envelope, target)
            new = replace(topic, leases=leases.advanced(self.live(), self.version + 1))
            why = f"{broker}: messages of publishers that the topic does not name wait there; it gets a small share"
            await self._commit([new], decision=why)

    async def account(self, name: str, broker: str, homes: Mapping[str, float]) -> None:
        """So many msg/s come to ``broker`` from publishers of topic ``name`` that belong elsewhere: shares follow.
        ``homes``: {broker that they belong to: msg/s}; empty: they have gone."""
        async with self._writing:
            topic = self.topics[name]
            astray = {**topic.astray, broker: homes} if homes else {**topic.astray}
            if not homes:
                astray.pop(broker, None)
            if topic.removed or astray == topic.astray or (homes and not placing.room_for_extra(topic, broker)):
                return
            envelope, extra = topic.leases.envelope, [one for one in topic.extra if one not in astray]
            target = placing.shares(topic.spec, envelope, topic.placement, extra, placing.besides(astray))
            target = adapting.kept(topic, target)
            leases = topic.leases.retargeted(envelope, target).advanced(self.live(), self.version + 1)
            what = f"{broker}: {sum(homes.values()):,.6g} msg/s of publishers that belong elsewhere count there"
            what = what if homes else f"{broker}: those who moved away have gone"
            text = "\n".join([what, *placing.share_lines(target)])
            await self._commit([replace(topic, leases=leases, astray=astray)], decision=text)

    async def relocate(self, name: str, to: Mapping[str, str], why: str) -> bool:
        """Publishers of topic ``name`` belong to other brokers from now on: {publisher: broker}. False, and nothing is
        changed: they are not its own any more, or such a broker takes nobody."""
        async with self._placing:
            topic = self.topics.get(name)
            if topic is None or topic.removed or not set(to.values()) <= self.takes_more():
                return False
            if not to.keys() <= topic.spec.publishers.positions.keys():
                return False
            placement = topic.placement.moved(to)
            reasons = placing.reasons_after(topic.reasons, placement, topic.placement)
            await self._replace_topic(topic.spec, topic.burst, placement, reasons, why, asked_for=False)
            return True

    async def note(self, name: str, text: str) -> None:
        """An entry of the decision log of topic ``name``, if it is there."""
        async with self._writing:
            topic = self.topics.get(name)
            if topic is not None and not topic.removed:
                await self._commit([topic], decision=text)

    # What happens by itself

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
        if not self.is_settled():
            await self._advance()
            return
        now_s = trio.current_time()
        for name in [name for name, ends_s in self._grace_ends.items() if ends_s <= now_s]:
            await self._bury(name)
            self._grace_ends.pop(name, None)
        await self._free_what_lapsed()
        for name in self.draining & self.brokers.keys():  # what was begun before a restart, or failed
            async with self._placing:
                await self._move_publishers_off(name)
        await self._advance()
        for topic in self.managed():
            if topic.placement.missing > 0 and topic.name not in self.being_fitted:
                await self._place_rest(topic.name)

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

    def _silent_ms(self, name: str) -> float:
        return self.liveness.silent_s(name) * 1000

    async def _advance(self) -> None:
        async with self._writing:
            live = self.live()
            changed = [
                replace(topic, leases=leases)
                for topic in self.managed()
                if (leases := topic.leases.advanced(live, self.version + 1)) is not topic.leases
            ]
            if changed:
                await self._commit(changed)

    async def _place_rest(self, name: str) -> None:
        async with self._placing:
            topic = self.topics[name]
            offered = self.offered(topic.spec)
            if topic.removed or self._tried_on.get(name) == offered:
                return
            work = partial(placing.place_rest, topic.spec, topic.burst, offered, topic.placement.held())
            placement, reasons = await trio.to_thread.run_sync(work)
            self._tried_on[name] = offered
            if placement.missing < topic.placement.missing:
                await self._replace_topic(
                    topic.spec, topic.burst, placement, reasons, "brokers changed", asked_for=False
                )

    async def _lacking_without(self, name: str) -> dict[str, float]:
        """{topic: msg/s for which there would be no room if ``name`` were not there}. Under ``_placing``; nothing is
        changed."""
        topics, lacking = dict(self.topics), {}
        for topic in self._placed_on(name):
            offered = self.offered(topic.spec, topics, without=name)
            held = topic.placement.held(without={name})
            placement, _ = await trio.to_thread.run_sync(placing.place_rest, topic.spec, topic.burst, offered, held)
            topics[topic.name] = replace(topic, placement=placement)
            if placement.missing > topic.placement.missing:
                lacking[topic.name] = placement.missing - topic.placement.missing
        return lacking

    async def _move_publishers_off(self, name: str) -> None:
        """Under ``_placing``."""
        for topic in self._placed_on(name):
            offered, held = self.offered(topic.spec, without=name), topic.placement.held(without={name})
            work = partial(placing.place_rest, topic.spec, topic.burst, offered, held)
            placement, reasons = await trio.to_thread.run_sync(work)
            what = f"{name} is drained"
            await self._replace_topic(topic.spec, topic.burst, placement, reasons, what, asked_for=False, leaving=name)

    def _placed_on(self, name: str) -> list[Topic]:
        return [topic for topic in self.managed() if name in topic.placement.brokers]

    async def _bury(self, name: str, *, forget: bool = False) -> None:
        """``name`` is dead for good: its publishers go to others and its tokens are free."""
        async with self._placing:
            for topic in [topic for topic in self.topics.values() if has_part(topic, name)]:
                await self._bury_in(topic, name, f"{name} died")
            if forget:
                async with self._writing:
                    await self._commit([], forgotten=name)

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
            work = partial(placing.place_rest, topic.spec, topic.burst, offered, placement.held(without={name}))
            placement, reasons = await trio.to_thread.run_sync(work)
        await self._replace_topic(topic.spec, topic.burst, placement, reasons, what, asked_for=False, dead=name)

    # How it is done

    def _check_succession(self, old: Broker, new: Broker) -> None:
        """A later incarnation proves the death of an earlier one only where both need what one process can have: the
        lock of a data directory, or a port. Raises Conflict."""
        if new.directory != old.directory and old.dead:
            return
        if new.directory == old.directory or new.tcp_address == old.tcp_address:
            if new.incarnation < old.incarnation:
                rule = f"incarnation {old.incarnation} of broker {old.name} came later"
                raise Conflict("incarnation", new.incarnation, rule)
        elif self.is_alive(old.name) or any(has_part(topic, old.name) for topic in self.topics.values()):
            rule = (
                f"another broker named {old.name} ({old.tcp_address}, incarnation {old.incarnation}) is not proven "
                "dead: choose another name, or stop that one and POST its incarnation to .../dead"
            )
            raise Conflict("incarnation", new.incarnation, rule)

    def _is_gone(self, name: str, topic: Topic) -> bool:
        """Proven dead, and no incarnation has come since, or its lease is over. To be asked under ``_writing``."""
        proven = name not in self.brokers or self.brokers[name].dead
        return proven or name in topic.leases.lapsed(self._silent_ms)

    async def _replace_topic(
        self,
        spec: TopicSpec,
        burst: float,
        placement: Placement,
        reasons: Sequence[str],
        what: str,
        *,
        asked_for: bool = True,
        dead: str = "",
        leaving: str = "",
        fitting: bool = False,
    ) -> Topic:
        """Store ``spec`` as placed, and start its shares on their way. Under ``_placing``.

        Raises BadInput for batches that could never pass under ``reject``, if an operator asked for it: what happens
        by itself happens, and is warned about.
        """
        envelope = Amount(to_micro(spec.rate, "rate"), to_micro(burst, "burst"))
        async with self._writing:
            old, version = self.topics.get(spec.name), self.version + 1
            if old and dead and not self._is_gone(dead, old):
                return old  # it came back while this was planned
            leases = old.leases if old else Leases(envelope)
            leases = leases.freed(dead) if dead else leases
            # Under a fitting a broker that keeps some gives the others' tokens up at once, so that it can be measured.
            prompt = placement.brokers if fitting else ()
            astray = placing.on_their_way(old, placement, envelope, {dead, leaving, *prompt}) if old else {}
            extra = placing.extra_kept(old, placement, envelope, without=dead, astray=astray) if old else ()
            target = placing.shares(spec, envelope, placement, extra, placing.besides(astray))
            if old and adapting.is_same_place(old, spec, envelope, placement):
                target = adapting.kept(old, target)
            oversized = placing.oversized_batches(spec, placement, target)
            if oversized and asked_for and spec.on_excess == "reject":
                raise oversized[0]
            if old and leaving:  # for a while
                target = placing.leaving_share(old, placement, leaving, envelope) or target
            reasons = (*reasons, *(f"warning: {one}" for one in oversized))
            same_spec = old is not None and not old.removed and old.spec is spec
            new = Topic(
                spec=spec,
                version=old.version if old and same_spec else version,
                placement=placement,
                assignment_version=version,
                leases=adapting.pooled_if_due(
                    spec, leases.lasting(spec.lease_ms).retargeted(envelope, target)
                ).advanced(self.live(), version),
                reasons=tuple(reasons),
                channels=old.channels if old and not old.removed else (),
                astray=astray,
            )
            await self._commit([new], decision="\n".join([what, *reasons, *placing.share_lines(target)]))
            return new

    async def _commit(
        self,
        topics: Sequence[Topic],
        brokers: Sequence[Broker] = (),
        *,
        decision: str = "",
        forgotten: str = "",
        draining: Mapping[str, bool] | None = None,
        capacities: Mapping[str, tuple[Capacity, ...]] | None = None,
        besides: Sequence[Replace] = (),
        marks: FullMarks | None = None,
    ) -> None:
        """Store, then show. Under ``_writing``; everything in ``topics`` that has a new version has ``self.version +
        1``."""
        version = self.version + 1
        changes = {**(draining or {}), **({forgotten: False} if forgotten else {})}
        figures = {**(capacities or {}), **({forgotten: ()} if forgotten else {})}
        log = {topic.name: self._next_decision(topic.name, decision) for topic in topics} if decision else {}
        marks = lifted(self.marks if marks is None else marks, self.topics, topics)
        stored = records.changes(self.topics, topics, brokers, version, log, forgotten, changes, figures)
        await self._store.apply([*stored, *records.mark_changes(self.marks, marks), *besides])
        self.marks = marks
        self.version = version
        self.brokers.update({broker.name: broker for broker in brokers})
        self.brokers.pop(forgotten, None)
        self.capacities = {name: kept for name, kept in {**self.capacities, **figures}.items() if kept}
        self.draining = {name for name in self.draining | changes.keys() if changes.get(name, True)}
        self._desired_version.pop(forgotten, None)  # what changes from now on is not counted for it
        for name, entry in log.items():
            self.decisions[name] = [*self.decisions.get(name, []), entry][-records.DECISIONS_KEPT :]
        before, self.topics = self.topics, {**self.topics, **{topic.name: topic for topic in topics}}
        for name in self.brokers:
            told = name in changes
            if told or any(desired.concerns(before.get(topic.name), topic, name) for topic in topics):
                self._desired_version[name] = version
            if told or topics or name not in self._desired_version:
                self._desired_version.setdefault(name, version)
                self._changed.pop(name, trio.Event()).set()

    def _next_decision(self, topic: str, text: str) -> Decision:
        entries = self.decisions.get(topic)
        number = entries[-1].number + 1 if entries else 1
        return Decision(number=number, wall_ns=self._wall_ns(), lines=tuple(text.split("\n")))
