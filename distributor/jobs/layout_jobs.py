"""The layout loops of all topics, live: what is seen of a topic goes in, searches are carried out one at a time.

One search at a time: measurements of two would each see the moves of the other. What is running is stored, so that the
next leader begins it again from the layout in force; how it ended is stored and shown.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import trio

from distributor.fitting import summary
from distributor.fitting.events import Disturbed, Outcome, Queue, Report, Scaler, Seen, Steps
from distributor.fitting.layout_loop import LayoutLoop
from distributor.fitting.paper import PaperFitting
from distributor.fitting.summary import Json
from distributor.fitting.task import FittingOptions, is_same_task, parsed_options
from distributor.fitting.transitions import Rules, State
from distributor.jobs.layout_environment import LayoutEnvironment, insist
from distributor.jobs.live_search import LiveSearch, Superseded, now_ns
from distributor.model.cluster import FittingRecord, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.registry.topic_requests import FittingIntent
from distributor.sync.figures import utc
from srtm.concurrency.portions import PORTION
from srtm.control import MeasurementAnswer, MeasurementReport
from srtm.topics.spec import TopicSpec

PERIOD_S = 1.0  # a look at a topic costs microseconds


class _Recorded(msgspec.Struct):
    """What of an outcome is read again."""

    state: str = ""
    service_us: dict[str, float] = {}


@dataclass
class _Entry:
    """One topic. ``scope``: of its search."""

    options: FittingOptions
    loop: LayoutLoop
    started_at: str = ""
    search: LiveSearch | None = None
    fitting: Steps | None = None
    heard: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class LayoutJobs:
    """``run`` it once; the other methods may be called any time."""

    def __init__(
        self,
        around: LayoutEnvironment,
        default: FittingOptions,
        rules: Rules | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._around = around
        self._registry = around.registry
        self._default = default
        self._rules = rules or Rules()
        self._wall_s = wall_s
        self._entries: dict[str, _Entry] = {}
        self._queue: deque[str] = deque()
        self._queued = trio.Event()
        self._woken = trio.Event()  # there is something to look at before the period is over
        self._serial = 0

    # Requests

    def intended(self, options: FittingOptions | None) -> FittingIntent:
        """What is to be stored with a topic that is created or changed, in the same transaction: nothing may come
        between its placement and its search. ``options``: as asked for with it."""
        return lambda spec: self._intention(spec, options)

    def _intention(self, spec: TopicSpec, options: FittingOptions | None) -> FittingRecord | None:
        chosen = self._chosen(spec.name, options)
        if _is_asked(spec, chosen):
            return self._record(spec.name, chosen, summary.QUEUED, running=True)
        remembered = options or self._last_options(spec.name)
        if remembered is None:
            return None
        state = summary.OFF if chosen.method == "off" else summary.WATCHING
        return self._record(spec.name, remembered, state, running=False)

    def _chosen(self, name: str, options: FittingOptions | None) -> FittingOptions:
        """As asked for, or as the topic was fitted last; nothing by itself where the distributor fits nothing."""
        if options is None and self._default.method != "off":
            return self._last_options(name) or self._default
        return options or self._default

    def _last_options(self, name: str) -> FittingOptions | None:
        record = self._registry.fittings.get(name)
        return None if record is None else parsed_options(record.method, record.rounds_s)

    def _stored_options(self, record: FittingRecord | None) -> FittingOptions:
        """As a topic was fitted when this distributor began to lead."""
        if record is None:
            return self._default
        is_off = msgspec.json.decode(record.outcome, type=_Recorded).state == summary.OFF
        return FittingOptions(method="off") if is_off else parsed_options(record.method, record.rounds_s)

    async def submitted(self, topic: Topic, before: Topic | None, options: FittingOptions | None) -> None:
        """``topic`` was created or changed from ``before``, or sent again. ``options``: as asked for with it. Raises
        Unavailable."""
        is_new = before is None or before.removed
        if options is None and not is_new and before is not None and is_same_task(before.spec, topic.spec):
            return
        self.cancel(topic.name)
        # Entered before anything is awaited: a look meanwhile would begin again what was running.
        self._enter(topic, self._chosen(topic.name, options), ask=True)
        if options is not None and not is_new:  # after what the search that was cancelled may have noted
            record = self._intention(topic.spec, options)
            if record is not None:
                await self._registry.note_fitting(record)
        self._woken.set()

    def cancel(self, name: str) -> None:
        """End the search for topic ``name``, and forget what was seen of it."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.scope.cancel()
        self._around.syncing.layouts.states.pop(name, None)

    def _enter(self, topic: Topic, options: FittingOptions, *, ask: bool) -> _Entry:
        always = _is_asked(topic.spec, options)
        rules = replace(self._rules, always=always, may_move=always or self._rules.may_move)
        entry = self._entries[topic.name] = _Entry(options, LayoutLoop(rules))
        if ask:
            entry.loop.ask()
        return entry

    def view(self, topic: Topic) -> Json:
        """How a search for a layout of ``topic`` goes on, or how the latest ended."""
        entry, record = self._entries.get(topic.name), self._registry.fittings.get(topic.name)
        if entry is None and record is not None and record.running:
            options, services = parsed_options(record.method, record.rounds_s), self._services(topic.name)
            return {"topic": topic.name, **summary.begun(summary.QUEUED, options, self._now(), services=services)}
        if entry is None or not (entry.search or entry.loop.state is State.QUEUED or entry.loop.is_asked):
            return stored_view(record, topic)
        shown_state, reason = summary.RUNNING if entry.search else summary.QUEUED, ""
        if entry.loop.is_asked and not entry.heard and entry.loop.state is not State.QUEUED and not entry.search:
            shown_state = summary.WAITING
            reason = "not measured: no traffic; the placement by rates stands until messages come"
        shown = summary.begun(
            shown_state,
            entry.options,
            entry.started_at,
            phase=entry.loop.state.value,
            rounds=entry.fitting.rounds if entry.fitting is not None else (),
            measured=entry.search.latency if entry.search is not None else {},
            services=self._services(topic.name, entry.search),
            reason=reason,
        )
        return {"topic": topic.name, **shown}

    async def report(self, broker: str, measurement: str, report: MeasurementReport) -> MeasurementAnswer:
        """What ``broker`` has measured. Raises BadInput."""
        return await self._around.measuring.report(broker, measurement, report)

    # The loops

    async def run(self) -> None:
        """Until cancelled. What was running is begun again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._around.scaling.run)
            await self._registry.wait_settled()  # a search over those heard so far would end without the others
            nursery.start_soon(self._search_one_by_one)
            while True:
                self._woken = trio.Event()
                await self.look()
                with trio.move_on_after(PERIOD_S):
                    await self._woken.wait()

    async def look(self) -> None:
        """Once at every topic."""
        topics = {topic.name: topic for topic in self._registry.managed()}
        for name in self._entries.keys() - topics.keys():
            self.cancel(name)
        for number, (name, topic) in enumerate(topics.items()):
            if number % PORTION == 0:
                await trio.lowlevel.checkpoint()
            if not len(topic.spec.publishers) or self._is_disturbed(topic):
                continue
            entry = self._entries.get(name)
            if self._registry.pins.elsewhere(topic) and (entry is None or entry.search is None):
                await insist(partial(self._registry.leave_pinned, name), self._around.log)
            if entry is None:
                record = self._registry.fittings.get(name)
                entry = self._enter(topic, self._stored_options(record), ask=record is not None and record.running)
            if entry.options.method != "off":
                self._look_at(topic, entry)

    def _look_at(self, topic: Topic, entry: _Entry) -> None:
        sessions, loop = self._around.syncing.sessions, entry.loop
        entry.heard = any(
            one.last_60s.access.count > 0 or one.backlog > 0 for one in sessions.known(topic.name).values()
        )
        is_short = self._around.scaler is not Scaler.NONE and topic.placement.missing > 0
        watches = loop.watches and entry.options.method != "paper"
        promise = sessions.promise(topic).verdict if watches else "unknown"
        if Queue() in loop.handle(Seen(promise=promise, heard=entry.heard, short=is_short), now_ns()):
            self._queue.append(topic.name)
            self._queued.set()
        self._show(topic.name, entry)

    def _show(self, name: str, entry: _Entry) -> None:
        outcome = "" if entry.loop.outcome is None else f" (last: {entry.loop.outcome.value})"
        self._around.syncing.layouts.states[name] = f"{entry.loop.state.value}{outcome}"

    def _is_disturbed(self, topic: Topic) -> bool:
        """Whether others are about to place it: what is seen now says nothing of its layout."""
        died = self._registry.died_lately(topic)
        return bool(died or self._registry.draining & topic.leases.target.keys())

    async def _search_one_by_one(self) -> None:
        while True:
            while self._queue:
                name = self._queue.popleft()
                entry, topic = self._entries.get(name), self._registry.managed_topic(name)
                if entry is not None and topic is not None and entry.loop.state is State.QUEUED:
                    await self._search_or_fail(topic, entry)
            await self._queued.wait()
            self._queued = trio.Event()

    async def _search_or_fail(self, topic: Topic, entry: _Entry) -> None:
        """A defect ends this search, not the leader; and it has ended: the next leader does not meet it again."""
        name = topic.name
        self._registry.being_fitted.add(name)
        entry.scope = trio.CancelScope()
        try:
            with entry.scope:
                await self._search(topic, entry)
        except Exception as error:  # noqa: BLE001
            self._around.log.failure("a search is defective", topic=name, trace=traceback.format_exc())
            entry.loop.handle(Disturbed(), now_ns())
            entry.loop.rest(Outcome.DEFECT, now_ns())
            record = self._record(
                name, entry.options, summary.FAILED, running=False, reason=f"a defect in the distributor: {error!r}"
            )
            await insist(partial(self._registry.note_fitting, record), self._around.log)
        finally:
            self._registry.being_fitted.discard(name)
            entry.search = entry.fitting = None
            if entry.scope.cancel_called:
                entry.loop.handle(Disturbed(), now_ns())
            if self._entries.get(name) is entry:
                self._show(name, entry)

    async def _search(self, topic: Topic, entry: _Entry) -> None:
        loop, name = entry.loop, topic.name
        if self._is_disturbed(topic):
            loop.handle(Disturbed(), now_ns())
            return
        entry.started_at = self._now()
        running = self._record(name, entry.options, summary.RUNNING, running=True)
        await insist(partial(self._registry.note_fitting, running), self._around.log)
        self._serial += 1
        try:
            report = await self._run(name, entry, f"{self._registry.version}.{self._serial}")
        except Superseded as error:
            self._around.log.info("a search is over", topic=name, reason=error)
            loop.handle(Disturbed(), now_ns())
            stopped = self._record(name, entry.options, summary.QUEUED, running=loop.is_asked, reason=str(error))
            await insist(partial(self._registry.note_fitting, stopped), self._around.log)
            return
        await self._end(name, entry, report)

    async def _run(self, name: str, entry: _Entry, serial: str) -> Report:
        """Raises Superseded."""
        if entry.options.method == "paper":
            paper = PaperFitting(round_ns=round(entry.options.rounds_s * 1e9))
            search = entry.search = LiveSearch(name, paper, self._around, serial)
            entry.fitting = paper
            report = await search.run(paper.handle(search.begin, now_ns()))
            entry.loop.rest(report.outcome, now_ns())
            return report
        search = entry.search = LiveSearch(name, entry.loop, self._around, serial)
        entry.fitting = entry.loop
        first = await trio.to_thread.run_sync(entry.loop.handle, search.begin, now_ns(), abandon_on_cancel=True)
        return await search.run(first)

    async def _end(self, name: str, entry: _Entry, report: Report) -> None:
        layouts = self._around.syncing.layouts
        layouts.searches[report.outcome.value] = layouts.searches.get(report.outcome.value, 0) + 1
        target_ns = self._registry.topics[name].spec.slo.latency_ns
        services = self._services(name, entry.search)
        shown = summary.ended(report, entry.options, entry.started_at, target_ns, services)
        is_over = report.outcome is not Outcome.NO_TRAFFIC or not entry.loop.is_asked
        record = _stored(name, entry.options, shown, running=not is_over)
        decision = "\n".join(["fitting: " + shown["explanation"][0], *shown["explanation"][1:]])
        found: CapacityCaps = entry.search.caps(report.full) if entry.search is not None else NO_CAPS
        await insist(
            partial(self._registry.note_fitting, record, decision=decision, caps=found),
            self._around.log,
        )

    def _record(
        self, name: str, options: FittingOptions, state: str, *, running: bool, reason: str = ""
    ) -> FittingRecord:
        shown = summary.begun(state, options, self._now(), services=self._services(name), reason=reason)
        return _stored(name, options, shown, running=running)

    def _services(self, name: str, search: LiveSearch | None = None) -> summary.Services:
        """As ``search`` has recorded them; of other brokers, as they were when ``name`` was fitted before."""
        known = measured_service_us(self._registry.fittings.get(name))
        recorded = search.service_us if search is not None else {}
        return summary.Services({**known, **recorded}, self._around.syncing.sessions.lab_service_ns)

    def _now(self) -> str:
        return utc(round(self._wall_s() * 1e9))


def stored_view(record: FittingRecord | None, topic: Topic) -> Json:
    """What is known of a search that does not run here."""
    shown: Json = summary.off() if record is None else msgspec.json.decode(record.outcome)
    return {"topic": topic.name, **shown}


def measured_service_us(record: FittingRecord | None) -> dict[str, float]:
    """{broker: what a message took of it in the mean}, as that search, or an earlier one of the topic, recorded it."""
    return {} if record is None else msgspec.json.decode(record.outcome, type=_Recorded).service_us


def _is_asked(spec: TopicSpec, options: FittingOptions) -> bool:
    """Whether a topic is fitted when it is submitted, whatever its verdict."""
    return options.method in ("always", "paper") and len(spec.publishers) > 0


def _stored(name: str, options: FittingOptions, shown: Json, *, running: bool) -> FittingRecord:
    return FittingRecord(
        topic=name,
        running=running,
        method=options.method,
        rounds_s=options.rounds_s,
        outcome=msgspec.json.encode(shown).decode(),
    )
