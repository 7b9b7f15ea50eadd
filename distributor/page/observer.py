"""Looks at all topics and brokers every few seconds, for whoever watches: rows, histories, and events.

One look serves all browsers. It goes in portions: there may be ten thousand topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import cache, partial

import msgspec
import trio

from distributor.model.cluster import Decision, Topic
from distributor.page.latency_history import STEP_S, LatencyHistory
from distributor.page.rows import BrokerRow, TopicRow, broker_row, topic_row
from distributor.registry.registry import Registry
from distributor.sync.figures import utc
from distributor.sync.service import SyncService
from distributor.verdict.kept import Verdict, latest, promise_verdict
from distributor.views.broker_view import broker_word, capacity_view
from distributor.views.topic_why import CapacityOf, topic_why
from srtm.concurrency.portions import in_portions

EVENTS_S = 1.0
EVENTS_KEPT = 200


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. ``topic`` or ``broker`` is empty."""

    number: int
    at: str
    lines: Sequence[str]
    topic: str = ""
    broker: str = ""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """Names in events that are not known any more."""

    topics: Sequence[str]
    brokers: Sequence[str]


class Observer:
    """``run`` it once, while this distributor leads. ``topics`` and ``brokers`` are of the latest look."""

    def __init__(self, registry: Registry, syncing: SyncService) -> None:
        self.topics: Sequence[TopicRow] = ()
        self.brokers: Sequence[BrokerRow] = ()
        self.history = LatencyHistory()
        self.looks = 0
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)  # oldest first
        self._registry = registry
        self._syncing = syncing
        self._told: dict[str, int] = {
            name: entries[-1].number for name, entries in registry.decisions.items() if entries
        }
        self._words: Mapping[str, str] = {}
        self._broken: dict[str, int] = {}  # {broker: topics whose promise it broke at the latest look}
        self._since: dict[str, tuple[Verdict, str]] = {}  # {topic: its latest verdict, when it was first seen}
        self._turns: dict[str, tuple[str, str]] = {}  # {topic: its latest verdict in the decision log, when}
        for name, entries in registry.decisions.items():
            for entry in entries:
                self._note_turn(name, entry)
        self._number = 0
        self._changed = trio.Event()
        self._over = False

    async def run(self) -> None:
        """Until cancelled."""
        try:
            look_at = trio.current_time()
            while True:
                has_changed = self._note_events()
                if trio.current_time() >= look_at:
                    look_at = trio.current_time() + STEP_S
                    await self._look()
                elif has_changed:  # such as after a start, when brokers come one by one
                    await self._look_at_brokers()
                self._tell()
                await trio.sleep(EVENTS_S)
        finally:
            self._over = True
            self._tell()

    async def changes(self) -> AsyncGenerator[None]:
        """Yield once at first, then after every second or look, until the lead ends."""
        while not self._over:
            yield
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # A look

    async def _look(self) -> None:
        topics = self._registry.managed()
        names = {topic.name for topic in topics}
        self.history.advance(self._registry.state.wall_ns() / 1e9, names)
        self._since = {name: seen for name, seen in self._since.items() if name in names}
        self._turns = {name: turn for name, turn in self._turns.items() if name in names}
        rows: list[TopicRow] = []
        broken: dict[str, int] = {}
        capacity_of = cache(partial(capacity_view, registry=self._registry))
        for row, worst in await in_portions(self._observed(topic, capacity_of) for topic in topics):
            rows.append(row)
            if worst is not None:
                broken[worst] = broken.get(worst, 0) + 1
        self.topics, self._broken = rows, broken
        await self._look_at_brokers()

    async def _look_at_brokers(self) -> None:
        known = (name for name in list(self._registry.brokers) if name in self._registry.brokers)  # not forgotten since
        rows = (broker_row(name, self._registry, self._syncing, self._broken.get(name, 0)) for name in known)
        self.brokers, self.looks = await in_portions(rows), self.looks + 1

    def _observed(self, topic: Topic, capacity_of: CapacityOf) -> tuple[TopicRow, str | None]:
        """The row of ``topic``, and the broker that breaks its promise."""
        reports, links = self._syncing.sessions.heard(topic.name), self._syncing.sessions.links(topic.name)
        promise = promise_verdict(topic.spec.slo, reports, links)
        demand = sum(self._syncing.histories.arrival_rates(topic.name).values())
        verdict, since = self._since.get(topic.name, ("", ""))
        if verdict != promise.verdict:
            since = utc(self._registry.state.wall_ns())
            self._since[topic.name] = promise.verdict, since
        turn, turned_at = self._turns.get(topic.name, ("", ""))
        since = turned_at if turn == promise.verdict else since
        is_broken = promise.verdict == "broken"
        why = topic_why(topic, self._registry, self._syncing, capacity_of) if is_broken else None
        row = topic_row(topic, promise, why, since, reports, demand, self._syncing.layouts.states.get(topic.name))
        now = latest(topic.spec.slo, reports, links)
        in_force = sum(report.rate for report in reports.values()) if reports else None  # no broker is heard
        delays = (now.access_ms, now.processing_ms, now.network_ms, now.consumer_wait_ms)
        self.history.record(topic.name, (*delays, demand, in_force, row.backlog))
        return row, promise.decides.broker if is_broken else None

    # Events

    def gone(self) -> Gone:
        """What the events that are kept tell of, and is not there now."""
        topics = {event.topic for event in self.events if event.topic}
        brokers = {event.broker for event in self.events if event.broker}
        known = self._registry.managed_topic
        return Gone(
            topics=sorted(name for name in topics if known(name) is None),
            brokers=sorted(brokers - self._registry.brokers.keys()),
        )

    def _note_events(self) -> bool:
        """Note what came into decision logs, and brokers whose state is another, since the last time.

        Returns whether a broker's is.
        """
        self._told = {name: number for name, number in self._told.items() if name in self._registry.decisions}
        for name, entries in self._registry.decisions.items():
            told = self._told.get(name, 0)
            if entries and entries[-1].number > told:
                for entry in entries:
                    if entry.number > told:
                        self._note_turn(name, entry)
                        self._add(utc(entry.wall_ns), entry.lines, topic=name)
                self._told[name] = entries[-1].number
        words = {
            name: broker_word(name, self._registry, self._syncing.sessions.of(name).drain)
            for name in self._registry.brokers
        }
        now = utc(self._registry.state.wall_ns())
        for name in words.keys() | self._words.keys():
            word, before = words.get(name, "forgotten"), self._words.get(name)
            if self._words and word != before:
                self._add(now, [word if before is None else f"{word}, was {before}"], broker=name)
        has_changed = words != self._words
        self._words = words
        return has_changed

    def _note_turn(self, topic: str, decision: Decision) -> None:
        """Take the time at which a promise turned from the log, as the topic's page does."""
        subject, _, rest = decision.lines[0].partition(" ")
        if subject == "promise":
            self._turns[topic] = rest.partition(":")[0], utc(decision.wall_ns)

    def _add(self, at: str, lines: Sequence[str], topic: str = "", broker: str = "") -> None:
        self._number += 1
        self.events.append(Event(number=self._number, at=at, lines=lines, topic=topic, broker=broker))
