"""The conversation with brokers: takes in what they report, holds the answer back until there is news, says who shall
move.

What is only observed lives here (reports, strangers that wait for their new broker); the book is ``registry``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import trio

from distributor.model.change_log import Changes
from distributor.model.cluster import Topic
from distributor.registry import desired_state as desired
from distributor.registry.broker_updates import BrokerUpdate
from distributor.registry.registry import Registry
from distributor.relief.policy import Relief
from distributor.relief.values import rules_of
from distributor.sync.broker_checks import presented
from distributor.sync.histories import Histories
from distributor.sync.misplaced_publishers import Whereabouts, is_news, is_worth
from distributor.sync.penalty import Gauged
from distributor.sync.release_rates import Releases
from distributor.sync.report_checks import Reported, reported
from srtm.control import (
    BrokerMachine,
    DrainProgress,
    MeasurementRequest,
    Move,
    Stranger,
    SyncAnswer,
    SyncRequest,
    Throttling,
    TopicReport,
)

_EPHEMERAL = "#ephemeral"
_TELL_MOVES = 2
_FOR_SUBSCRIBERS_S = 1.0  # so long they have to connect to a broker that is new to the topic


@dataclass(frozen=True, slots=True)
class _Seen:
    """What decides, beside reports, which channels topics have."""

    topics: int  # changes of them
    heard: frozenset[str]  # brokers not known to be dead that have reported
    living: frozenset[str]  # those that are not known to be dead
    changes: int  # of channels in reports, so far


class Syncing:
    """``reports``: {broker: {topic: its latest report}}; ``drains``: {broker: how far it has got, if it drains};
    ``lab_service_ns``: {broker: its service time in the laboratory, 0 elsewhere}; ``throttling``: {broker: what others
    take of its processors}; ``machines``: {broker: what it runs on}; ``histories``: what came to topics; ``relief``:
    who moves off overloaded brokers (``relieving`` asks it)."""

    def __init__(
        self, registry: Registry, measurements: Callable[[str], list[MeasurementRequest]] = lambda _broker: []
    ) -> None:
        """``measurements``: those that a broker shall be running."""
        self._measurements = measurements
        self.ignored_reports: Counter[str] = Counter()  # by broker, since the start
        self.drains: dict[str, DrainProgress | None] = {}  # as said last
        self.lab_service_ns: dict[str, int] = {}
        self.penalties: dict[str, Gauged] = {}  # {topic: its DRL penalty, lately}
        self.throttling: dict[str, Throttling | None] = {}
        self.machines: dict[str, BrokerMachine | None] = {}
        self.news = trio.Event()  # set, and replaced, whenever a broker was heard
        self._measured: dict[str, list[MeasurementRequest]] = {}  # {broker: what it was told last to measure}
        self.histories = Histories(registry)
        self.relief = Relief(rules_of(registry.config))
        self._registry = registry
        self._reported: dict[str, Reported] = {}  # {broker: what it has reported, up to which request}
        self._channel_changes = Changes()  # managed topics of which a report named other channels than before
        self._channels_seen: dict[str, _Seen] = {}  # {broker: what its channels were put together with}
        self._latest: dict[str, object] = {}  # {broker: a token of its latest sync}
        self._strangers: dict[str, dict[Stranger, int]] = {}  # {broker: {who may have to move: how often told}}
        self._whereabouts = Whereabouts()
        self._releases = Releases()
        self._ready_since_s: dict[str, dict[str, float]] = {}  # {topic: {broker: its share is in force, trio time}}

    async def sync(self, name: str, request: SyncRequest) -> SyncAnswer:
        """The desired state of broker ``name``, whole or as differences from ``have_version``, at once or, for up to
        ``wait_s``, when it differs from ``have_version`` or somebody is to move. Raises BadInput, Conflict (a later
        incarnation is known), Unavailable (the store)."""
        broker = presented(name, request)
        before = self._reported.get(name)
        now, seen = reported(before, request), self._seen()
        await self._registry.apply_update(
            BrokerUpdate(
                broker=broker,
                have_version=request.have_version,
                applied=request.applied,
                held=request.held,
                channels=self._news_of_channels(name, now, seen) if now is not None and now is not before else {},
            )
        )
        mine = self._latest[name] = object()
        wait_s = min(max(request.wait_s, 0.0), self._registry.config.longest_wait_s)
        self._registry.liveness.hear(name, wait_s)
        self.drains[name] = request.drain
        self.lab_service_ns[name] = request.lab_service_time_ns
        self.throttling[name] = request.throttling
        self.machines[name] = request.machine
        self._note_strangers(name, request.strangers)
        if self._reported.get(name) is not before:  # by another request of this broker, meanwhile
            before = self._reported.get(name)
            now = reported(before, request)
        if now is None:
            wait_s = 0.0  # it is to tell everything
        elif now is not before:
            self._channels_seen[name] = seen
            await self._take_reports(name, request, before, now)
        self.news.set()
        self.news = trio.Event()
        return await self._answer(name, request, wait_s, mine)

    async def _take_reports(self, name: str, request: SyncRequest, before: Reported | None, now: Reported) -> None:
        self._reported[name] = now
        self.ignored_reports[name] += now.ignored
        known = before.topics if before is not None else {}
        topics = self._registry.topics
        self._channel_changes.note(topic for topic in now.rechanneled if topic in topics)
        self._wake_for_subscribers(known, now)
        if request.partial:  # of what it does not name nothing is known that was not known before
            return
        released = self._releases.note(name, now, trio.current_time())
        if released is not None:
            self._registry.headroom.observe(name, released.rates, released.span_s, self._registry.topics)
        await self._account_for_strays(name, request.have_version, now.topics)
        await self._share_where_messages_wait(name, now.topics)
        if name in self._registry.draining and not request.accepting:
            await self._take_shares_not_needed(name, now.topics)

    def forget(self, name: str) -> None:
        self.drains.pop(name, None)
        self.lab_service_ns.pop(name, None)
        self.throttling.pop(name, None)
        self.machines.pop(name, None)
        self.ignored_reports.pop(name, None)
        self._strangers.pop(name, None)
        self._latest.pop(name, None)
        self._reported.pop(name, None)
        self._channels_seen.pop(name, None)
        self._whereabouts.forget(name)
        self._measured.pop(name, None)
        self._releases.forget(name)
        self._registry.headroom.forget(name)
        for by_topic in self._ready_since_s.values():
            by_topic.pop(name, None)

    def forget_topic(self, name: str) -> None:
        """``name`` was removed: what was observed of it says nothing of another topic of that name."""
        self.penalties.pop(name, None)
        self.histories.forget_topic(name)
        self._channel_changes.forget(name)
        self._ready_since_s.pop(name, None)

    def living(self) -> dict[str, Mapping[str, TopicReport]]:
        """The latest reports of brokers that are not known to be dead: what a dead one had is no news any more."""
        brokers = self._registry.brokers
        return {name: one for name, one in self.reports.items() if name in brokers and not brokers[name].dead}

    @property
    def reports(self) -> dict[str, Mapping[str, TopicReport]]:
        return {name: one.topics for name, one in self._reported.items()}

    def report(self, broker: str, topic: str) -> TopicReport | None:
        """The latest of ``topic`` by ``broker``, which may be dead since."""
        known = self._reported.get(broker)
        return None if known is None else known.topics.get(topic)

    def all_channels(self, topic: str) -> set[str]:
        """As reported last, ephemeral ones too."""
        return {channel for one in self.living().values() if topic in one for channel in one[topic].channels}

    def _seen(self) -> _Seen:
        brokers = self._registry.brokers
        living = frozenset(name for name, broker in brokers.items() if not broker.dead)
        heard = living & self._reported.keys()
        return _Seen(self._registry.topic_changes.count, heard, living, self._channel_changes.count)

    def _news_of_channels(self, name: str, now: Reported, seen: _Seen) -> dict[str, tuple[str, ...]]:
        """{topic: its channels anywhere}, where they may be others than when ``name`` was heard last."""
        last, topics = self._channels_seen.get(name), self._registry.topics
        if last is None or (last.heard, last.living) != (seen.heard, seen.living):
            names = [*now.changed, *now.topics]
        else:
            names = [*now.rechanneled]
            names += self._channel_changes.since(last.changes)  # others may not have seen it, if both came at once
            names += [one for one in self._registry.topic_changes.since(last.topics) if one in now.topics]
        reports = {**self.living(), name: now.topics}
        return {
            topic: self._channels(topics[topic], reports)
            for topic in dict.fromkeys(names)
            if topic in topics and any(topic in by_topic for by_topic in reports.values())
        }

    def _channels(self, topic: Topic, reports: Mapping[str, Mapping[str, TopicReport]]) -> tuple[str, ...]:
        """The channels that ``topic`` has anywhere. Those on record count until every living broker that has a part in
        it was heard."""
        heard = {
            channel
            for by_topic in reports.values()
            if topic.name in by_topic
            for channel in by_topic[topic.name].channels
            if not channel.endswith(_EPHEMERAL)
        }
        brokers = self._registry.brokers
        parts = {
            name
            for name in {*topic.placement.brokers, *topic.leases.target}
            if name in brokers and not brokers[name].dead
        }
        return tuple(sorted(heard if parts <= reports.keys() else heard.union(topic.channels)))

    def _note_strangers(self, name: str, strangers: Sequence[Stranger]) -> None:
        self._strangers.setdefault(name, {}).update(dict.fromkeys(strangers, 0))
        for stranger in strangers:
            if (topic := self._registry.topics.get(stranger.topic)) is not None:
                self._whereabouts.name(name, topic, stranger.publisher_id)

    def _wake_for_subscribers(self, before: Mapping[str, TopicReport], now: Reported) -> None:
        """Whoever waits to move to a broker may have waited for its subscribers."""
        came = [
            topic
            for topic in now.changed
            if (report := now.topics.get(topic)) is not None
            and report.consumed
            and (topic not in before or before[topic].consumed != report.consumed)
        ]
        if came:
            for broker in self._strangers:
                self._registry.wake(broker)

    async def _account_for_strays(self, name: str, have_version: int, reports: Mapping[str, TopicReport]) -> None:
        """Shares follow publishers that go on where they do not belong; where all have gone, and nothing waits any
        more, they are as assigned."""
        for topic in self._whereabouts.concerning(name, self._registry.managed()):
            report = reports.get(topic.name)
            if report is None:
                continue
            if self._registry.is_in_flux(topic.name) and name in topic.placement.brokers:
                continue
            if have_version < topic.assignment_version or self._registry.draining & topic.leases.target.keys():
                continue
            if any(stranger.topic == topic.name for stranger in self._strangers.get(name, ())):
                continue  # some wait for the word to move
            homes = self._whereabouts.count(name, topic, report.undeclared, trio.current_time())
            if homes is None or not is_news(topic, name, homes):
                continue
            if is_worth(topic, homes):
                await self._registry.set_misplaced(topic.name, name, homes)
            elif not report.backlog:
                await self._registry.set_misplaced(topic.name, name, {})

    async def _share_where_messages_wait(self, name: str, reports: Mapping[str, TopicReport]) -> None:
        for report in [one for one in reports.values() if one.backlog]:
            topic = self._registry.managed_topic(report.topic)
            if topic is not None and name not in topic.leases.target:
                await self._registry.add_small_share(topic.name, name)

    async def _take_shares_not_needed(self, name: str, reports: Mapping[str, TopicReport]) -> None:
        """``name`` drains and takes no messages: where none wait for tokens, none ever will again."""
        for topic in self._registry.managed():
            report = reports.get(topic.name)
            if name in topic.leases.target and not (report and report.backlog):
                await self._registry.take_back_share(topic.name, name)

    async def _answer(self, name: str, request: SyncRequest, wait_s: float, mine: object) -> SyncAnswer:
        """A sync that the broker has cut short by a later one goes on waiting here; it must not take moves with it."""
        registry, have_version = self._registry, request.have_version
        moves: list[Move] = []
        with trio.move_on_after(wait_s):
            while self._latest.get(name) is mine:
                moves = self._due_moves(name)
                told_all = self._measurements(name) == self._measured.get(name, [])
                if moves or registry.desired_version(name) != have_version or not told_all:
                    break
                await registry.changed(name).wait()
        if self._latest.get(name) is mine:
            self._measured[name] = self._measurements(name)
        measurements = self._measurements(name)
        version = registry.desired_version(name)
        draining = name in registry.draining
        if version == have_version:
            answer = SyncAnswer(version=version, unchanged=True, moves=moves, draining=draining)
        else:
            changed = registry.differences.since(name, request.incarnation, have_version)
            since = have_version if request.takes_differences and changed is not None else 0
            topics = [registry.topics[one] for one in changed or ()] if since else registry.topics.values()
            known, most = registry.brokers, registry.max_rate
            answer = desired.answer(
                version,
                have_version,
                name,
                topics,
                moves,
                known,
                most,
                draining=draining,
                since=since,
                remembered=request.remembered,
            )
            registry.differences.hand_out(name, request.incarnation, version)
        last = self._reported.get(name)
        number = last.number if last is not None and last.incarnation == request.incarnation else 0
        return msgspec.structs.replace(answer, measurements=measurements, reported=number)

    def _due_moves(self, name: str) -> list[Move]:
        """Strangers on ``name`` whose own broker is ready for them. Those told twice are taken off the list (one answer
        may have crossed with the broker's next request, which hangs up on it), and so are those that may stay."""
        moves = []
        waiting = self._strangers.get(name, {})
        for stranger in list(waiting):
            target = self._target(stranger, name)
            if target is None:
                del waiting[stranger]
            elif (move := self._move(stranger, target)) is not None:
                moves.append(move)
                waiting[stranger] += 1
                if waiting[stranger] == _TELL_MOVES:
                    del waiting[stranger]
        return moves

    def _target(self, stranger: Stranger, name: str) -> str | None:
        topic = self._registry.topics.get(stranger.topic)
        target = topic.placement.broker_of(stranger.publisher_id) if topic is not None else None
        return None if target == name else target

    def _move(self, stranger: Stranger, target: str) -> Move | None:
        """None: not yet."""
        topic = self._registry.topics[stranger.topic]
        if not self._is_ready(topic, target):
            return None
        return Move(
            topic=stranger.topic,
            publisher_id=stranger.publisher_id,
            address=self._registry.brokers[target].tcp_address,
            version=topic.assignment_version,
        )

    def _is_ready(self, topic: Topic, target: str) -> bool:
        """Whether ``target`` has all that publishers need there: its share in force, as large as it can be for now (and
        then it has the channels too), and subscribers wherever there are some, if they come within a second."""
        live = self._registry.live()
        if not (topic.holding(target).share.is_usable and target in live):
            self._ready_since_s.get(topic.name, {}).pop(target, None)
            return False
        if not all(held.is_acknowledged for name, held in topic.leases.holdings.items() if name in live):
            return False
        since_s = self._ready_since_s.setdefault(topic.name, {}).setdefault(target, trio.current_time())
        if trio.current_time() - since_s >= _FOR_SUBSCRIBERS_S:
            return True
        reports = [by_topic[topic.name] for by_topic in self.living().values() if topic.name in by_topic]
        here = self.report(target, topic.name)
        return {channel for one in reports for channel in one.consumed} <= set(here.consumed if here else ())
