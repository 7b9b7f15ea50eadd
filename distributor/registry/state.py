"""The distributor's one book: brokers and topics, versions, what is stored of them. Loads from the store at its start;
stores before it tells (what was acknowledged a little later).

Concurrency. Values are immutable and replaced in ``_commit`` only, which stores them first, under the short lock
``_writing``. What plans (and may take seconds in a worker thread) holds ``_placing`` besides: only it changes specs and
placements, so a plan made outside ``_writing`` still holds when it is committed; leases and brokers may have moved on
meanwhile and are read afresh. A method that raises has changed nothing.

Versions are one counter for everything: of specs, placements, shares and desired states. It only grows, and it is
stored with what it numbers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import trio

from distributor.config import DistributorConfig
from distributor.model.broker_load import NO_LOAD, BrokerLoad, loads_after, loads_of
from distributor.model.change_log import Changes
from distributor.model.cluster import Broker, Decision, FittingRecord, Placement, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.model.leases import MICRO, Amount, Leases
from distributor.placement import planner
from distributor.placement import proposals as adapting
from distributor.placement import reasons as reason_lines
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.headroom import Carried, most_rate
from distributor.placement.shares import (
    MIN_SHARE_FRACTION,
    ShareDemand,
    extra_load,
    kept_extra_brokers,
    load_in_transit,
    part_of_envelope,
    shares_while_leaving,
    target_shares,
)
from distributor.registry import desired_state as desired
from distributor.registry.broker_updates import Heard, is_held_on, lifted
from distributor.registry.deltas import Differences
from distributor.registry.liveness import Liveness
from distributor.storage import cluster_rows as records
from distributor.storage.cluster_rows import Stored
from distributor.storage.store import Store
from srtm.errors import NotFound
from srtm.log import Log
from srtm.token_bucket.exact_split import to_micro
from srtm.topics.capacity import Capacity
from srtm.topics.spec import TopicSpec


class Book:
    """See the module. ``brokers`` and ``topics`` may be read at any time; ``upkeep`` and ``registry`` change them."""

    def __init__(self, store: Store, config: DistributorConfig, *, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.config = config
        self.brokers: dict[str, Broker] = {}
        self.topics: dict[str, Topic] = {}  # removed ones too
        self.decisions: dict[str, list[Decision]] = {}  # oldest first
        self.capacities: dict[str, tuple[Capacity, ...]] = {}  # {broker: each of another promise or class}
        self.share_changes: dict[str, tuple[adapting.ShareChange, ...]] = {}  # of each topic, lately
        self.share_change_counts: Counter[str] = Counter()  # by topic, since the start
        self.draining: set[str] = set()  # brokers that get nothing new, give up what they have, and end
        self.liveness = Liveness(config.liveness_s)
        self.fittings: dict[str, FittingRecord] = {}  # {topic: of its latest}
        self.arranged_s: dict[str, float] = {}  # {topic: trio time at which its fitting placed it last}
        self.being_fitted: set[str] = set()  # topics for whose publishers nobody else looks for a place
        self.caps = NO_CAPS
        self.version = 0
        self.leads = True  # a standby shows what is stored, and hears no broker
        self.leader_url: str | None = None  # known to standbys
        self.differences = Differences()  # of what brokers are told
        self.topic_changes = Changes()
        self.removed: set[str] = set()  # topics of which brokers may still hold a share
        self._pooled: set[str] = set()  # topics whose tokens brokers exchange among themselves
        self._desired_version: dict[str, int] = {}  # {broker: version of its desired state}
        self._changed: dict[str, trio.Event] = {}  # {broker: set when its desired state changes}
        self._advanced: tuple[Mapping[str, Topic], set[str]] = ({}, set())  # topics and live brokers, at the last look
        self._unstored: dict[str, Topic] = {}  # {topic of which more was acknowledged: as it is stored}
        self._heard: dict[str, Heard] = {}  # {broker: its latest news}
        self._loads: tuple[int, Mapping[str, BrokerLoad]] = (0, {})  # as of so many changes of topics
        self._carried: Carried | None = None  # made when first asked for: who stands by need not know
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
        self.topic_changes.note({**self.topics, **stored.topics})
        self.topics, self.decisions = dict(stored.topics), dict(stored.decisions)
        self.removed = {name for name, topic in stored.topics.items() if is_held_on(topic)}
        self._pooled = {name for name, topic in stored.topics.items() if topic.leases.pool}
        self._carried = None
        self._unstored = {}
        self.capacities = dict(stored.capacities)
        self.draining = set(stored.draining)
        self.liveness = Liveness(self.config.liveness_s)
        self.fittings, self.caps = dict(stored.fittings), stored.caps
        self._desired_version = dict.fromkeys(stored.brokers, stored.version)
        self.differences = Differences()

    # Reading

    def topic(self, name: str) -> Topic:
        """Raises NotFound."""
        topic = self.managed_topic(name)
        if topic is None:
            raise NotFound("topic", name)
        return topic

    def managed_topic(self, name: str) -> Topic | None:
        """None: it is not there, or was removed."""
        topic = self.topics.get(name)
        return None if topic is None or topic.removed else topic

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

    def absent(self) -> set[str]:
        """Brokers that are proven dead, and have not come back."""
        return {name for name, broker in self.brokers.items() if broker.dead}

    def died_lately(self, topic: Topic) -> list[str]:
        """Brokers that are proven dead and still have publishers of ``topic``, who keep their places for the grace."""
        return sorted(self.absent().intersection(topic.placement.brokers))

    def is_draining(self, name: str) -> bool:
        """Whether it is taken out of service, or was."""
        return name in self.draining

    def typical_mcap(self) -> float:
        """Msg/s that a broker like those that there are states; 0: none does."""
        return max((one.mcap for one in self.brokers.values()), default=0.0)

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

    @property
    def loads(self) -> Mapping[str, BrokerLoad]:
        """{broker: what it has of all topics}, of those that have publishers."""
        changes, loads = self._loads
        if changes != self.topic_changes.count:
            loads = loads_after(loads, self.topic_changes.since(changes), self.topics)
            self._loads = self.topic_changes.count, loads
        return loads

    @property
    def carried(self) -> Carried:
        """What every broker carries, kept as topics change."""
        if self._carried is None:
            self._carried = Carried()
            for topic in self.topics.values():
                self._carried.note(topic)
        return self._carried

    def most_rate(self, topic: Topic, name: str) -> float | None:
        """Msg/s of ``topic`` that broker ``name`` can process beside what else it carries; None: not known."""
        mcap = self._mcap(name)
        known = most_rate(topic, name, mcap, self.carried.besides(name, topic.name)) if mcap else math.inf
        held_to = self.held_now(topic).get(name)
        if held_to is not None:
            batch = topic.placement.publishers.largest_batch
            part = part_of_envelope(topic.leases.envelope, topic.placement.publishers.load, held_to, batch)
            known = min(known, part.rate / MICRO)
        return None if known == math.inf else known

    def held_now(self, topic: Topic) -> dict[str, float]:
        """``held_to`` of a topic as it is placed."""
        return self.held_to(topic.spec, topic.placement, self.caps)

    def held_to(self, spec: TopicSpec, placement: Placement, caps: CapacityCaps) -> dict[str, float]:
        """{broker: msg/s of the topic of ``spec`` that it may serve}, of those that ``caps`` say are full of such
        traffic, and that have other topics: their promises go first. What is assigned there is served, and a little of
        what waits."""
        if not caps.rates or not len(spec.publishers):
            return {}
        least = spec.publishers.load * MIN_SHARE_FRACTION
        return {
            name: max(rate, least)
            for name, rate in caps.limits(spec.slo, spec.publishers, placement.assigned).items()
            if self.loads.get(name, NO_LOAD).allocated_besides(spec.name) > 0
        }

    def leaves_room(self, name: str) -> bool:
        """Whether nothing that broker ``name`` carries bounds the share of any topic there, as far as is known."""
        mcap = self._mcap(name)
        return (not mcap or self.carried.leaves_room(name, mcap)) and name not in self.caps.brokers

    def _mcap(self, name: str) -> float:
        """Msg/s; 0: not known."""
        broker = self.brokers.get(name)
        return self.carried.mcap(broker, self.capacities.get(name, ())) if broker is not None else 0.0

    def offered(
        self,
        spec: TopicSpec,
        topics: Mapping[str, Topic] | None = None,
        *,
        without: str = "",
        ignore_caps: bool = False,
    ) -> list[BrokerCapacity]:
        """The brokers, and what is left of them for the topic that ``spec`` asks for. ``topics``: instead of those that
        there are; ``ignore_caps``: whatever fittings found the brokers to keep of such traffic."""
        book = self.topics if topics is None else topics
        loads = self.loads if topics is None else loads_of(topics.values())
        brokers = [broker for name, broker in self.brokers.items() if name != without]
        found = planner.capacities(brokers, self.takes_more(), loads, spec, self.capacities)
        if ignore_caps:
            return found
        here = book.get(spec.name)
        full = self.caps.limits(spec.slo, spec.publishers, here.placement.assigned if here is not None else {})
        return [one.at_most(full.get(one.name, math.inf)) for one in found]

    def stir(self, broker: str) -> None:
        """There may be something to tell ``broker`` that is not in the book: a move, a measurement."""
        self._changed.pop(broker, trio.Event()).set()

    def _silent_ms(self, name: str) -> float:
        return self.liveness.silent_s(name) * 1000

    def _placed_on(self, name: str) -> list[Topic]:
        return [topic for topic in self.managed() if name in topic.placement.brokers]

    # How it is changed

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
        record: FittingRecord | None = None,
        found: CapacityCaps = NO_CAPS,
    ) -> Topic:
        """Store ``spec`` as placed, and start its shares on their way; ``record``: of its fitting, from now on;
        ``found``: full brokers, whoever leaves them by this. Under ``_placing``.

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
            misplaced = load_in_transit(old, placement, envelope, {dead, leaving, *prompt}) if old else {}
            extra = kept_extra_brokers(old, placement, envelope, dead, misplaced) if old else ()
            demand = ShareDemand(
                spec=spec,
                envelope=envelope,
                placement=placement,
                extra_brokers=extra,
                extra_load=extra_load(misplaced),
                dead_brokers=self.absent(),
                limits=self.held_to(spec, placement, self.caps.merged(found)),
            )
            target = target_shares(demand)
            if old and adapting.is_same_place(old, spec, envelope, placement):
                target = adapting.kept(old, target)
            oversized = reason_lines.oversized_batches(spec, placement, target)
            if oversized and asked_for and spec.on_excess == "reject":
                raise oversized[0]
            if old and leaving:  # for a while
                target = shares_while_leaving(old, demand, leaving) or target
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
                misplaced=misplaced,
            )
            decision = "\n".join([what, *reasons, *reason_lines.share_lines(target)])
            await self._commit([new], decision=decision, fitting=record, found=found)
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
        found: CapacityCaps = NO_CAPS,
        fitting: FittingRecord | None = None,
    ) -> None:
        """Store, then show. Under ``_writing``; everything in ``topics`` that has a new version has ``self.version +
        1``. ``found``: marks besides those that outlast the change."""
        version = self.version + 1
        changes = {**(draining or {}), **({forgotten: False} if forgotten else {})}
        figures = {**(capacities or {}), **({forgotten: ()} if forgotten else {})}
        log = {topic.name: self._next_decision(topic.name, decision) for topic in topics} if decision else {}
        caps = lifted(self.caps, self.topics, topics)
        if forgotten:  # whoever comes under that name may be another machine
            caps = caps.without(forgotten)
        caps = caps.merged(found)
        known = {**self.topics, **self._unstored}
        stored = records.changes(known, topics, brokers, version, log, forgotten, changes, figures)
        fitted = [] if fitting is None else [records.fitting_change(fitting)]
        await self._store.apply(itertools.chain(stored, records.cap_changes(self.caps, caps), fitted))
        for topic in topics:
            self._unstored.pop(topic.name, None)
            if topic.removed:
                for by_name in (self.fittings, self.share_change_counts, self.arranged_s, self._tried_on):
                    by_name.pop(topic.name, None)
        self.caps = caps
        if fitting is not None:
            self.fittings[fitting.topic] = fitting
        self.version, carried = version, self.carried.changes.count
        others = [one.name for one in brokers if one.name in self.brokers and self.brokers[one.name].mcap != one.mcap]
        self.brokers.update({broker.name: broker for broker in brokers})
        self.carried.changes.note([*others, *figures])
        self.brokers.pop(forgotten, None)
        self.capacities = {name: kept for name, kept in {**self.capacities, **figures}.items() if kept}
        self.draining = {name for name in self.draining | changes.keys() if changes.get(name, True)}
        self._desired_version.pop(forgotten, None)  # what changes from now on is not counted for it
        self._heard.pop(forgotten, None)
        self.differences.forget(forgotten)
        for name, entry in log.items():
            self.decisions[name] = [*self.decisions.get(name, []), entry][-records.DECISIONS_KEPT :]
        before = self.topics
        self._show_topics(topics)
        for topic in topics if decision else ():
            self._note_shares(before.get(topic.name), topic, decision)
        heavier = set(self.carried.changes.since(carried))
        for name in self.brokers:
            told = name in changes
            news = [topic.name for topic in topics if desired.concerns(before.get(topic.name), topic, name)]
            news += self._pooled_on(name) if name in heavier else []
            if told or news:
                self.differences.note(name, news, version)
                self._desired_version[name] = version
            if told or topics or name not in self._desired_version:
                self._desired_version.setdefault(name, version)
                self._changed.pop(name, trio.Event()).set()

    def _pooled_on(self, broker: str) -> list[str]:
        """Of those, with publishers there: each broker goes by what it was told that it can process."""
        there = self.carried.topics_on(broker) if self._pooled else ()
        return [name for name in there if name in self._pooled]

    def _note_shares(self, old: Topic | None, new: Topic, decision: str) -> None:
        """For people, beside what the adaptor proposed: shares that a decision has changed."""
        if new.removed:
            self.share_changes.pop(new.name, None)
        elif (change := adapting.decided_change(old, new, decision, self._wall_ns())) is not None:
            self.share_changes[new.name] = adapting.with_change(self.share_changes, new.name, change)

    def _show_topics(self, topics: Sequence[Topic]) -> None:
        """Instead of their namesakes."""
        self.topic_changes.note(topic.name for topic in topics if self.topics.get(topic.name) is not topic)
        if self._carried is not None:
            for topic in topics:
                self._carried.note_change(self.topics.get(topic.name), topic)
        self.topics = {**self.topics, **{topic.name: topic for topic in topics}}
        for topic in topics:
            (self.removed.add if is_held_on(topic) else self.removed.discard)(topic.name)
            (self._pooled.add if topic.leases.pool else self._pooled.discard)(topic.name)

    def _show_acknowledged(self, topics: Sequence[Topic]) -> None:
        """Under ``_writing``. Stored later: an acknowledgement only lets bounds fall, and brokers repeat it with every
        sync, so whoever loads the book without it is on the safe side, and soon hears it too."""
        for topic in topics:
            self._unstored.setdefault(topic.name, self.topics[topic.name])
        self._show_topics(topics)
        for name in self.brokers if topics else ():
            self.stir(name)

    async def store_acknowledged(self) -> None:
        """What was acknowledged and is not stored yet. Raises Unavailable."""
        async with self._writing:
            if self._unstored:
                await self._commit([self.topics[name] for name in self._unstored])

    def _next_decision(self, topic: str, text: str) -> Decision:
        entries = self.decisions.get(topic)
        number = entries[-1].number + 1 if entries else 1
        return Decision(number=number, wall_ns=self._wall_ns(), lines=tuple(text.split("\n")))
