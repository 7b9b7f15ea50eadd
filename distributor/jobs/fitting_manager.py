"""All fittings of the leader: which topic is being fitted, which waits, and how each ended.

A task a topic, many at once; those that share brokers take turns (``Claims``). What is running is stored, so that the
next leader begins it again from the layout in force; how it ended is stored and shown.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import trio

from distributor.fitting import summary as fitting_view
from distributor.fitting.events import Report, Scaler
from distributor.fitting.summary import Json
from distributor.fitting.task import FittingOptions, parsed_options
from distributor.jobs.fitting_environment import FittingEnvironment
from distributor.jobs.fitting_run import FailedFitting, FittingRun, Superseded, insist
from distributor.model.cluster import FittingRecord, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.registry.topic_requests import FittingIntent
from distributor.sync.penalty import utc
from srtm.control import MeasurementAnswer, MeasurementReport
from srtm.errors import Unavailable
from srtm.topics.spec import TopicSpec

_WAITS_S = 1.0


class _Recorded(msgspec.Struct):
    """What of an outcome is read again."""

    service_us: dict[str, float] = {}


@dataclass(frozen=True)
class _Wish:
    """``ramp``: it is new, beside other topics: its publishers are let in step by step."""

    options: FittingOptions
    ramp: bool = False


@dataclass
class _Runner:
    scope: trio.CancelScope
    wish: _Wish
    started_at: str
    state: str = fitting_view.QUEUED
    reason: str = ""
    run: FittingRun | None = None


class FittingManager:
    """``run`` it once; the other methods may be called any time."""

    def __init__(
        self, around: FittingEnvironment, default: FittingOptions, wall_s: Callable[[], float] = time.time
    ) -> None:
        self._around = around
        self._registry = around.registry
        self._default = default
        self._wall_s = wall_s
        self._runners: dict[str, _Runner] = {}
        self._wishes: dict[str, _Wish] = {}  # not yet taken up
        self._wished = trio.Event()
        self._serial = 0

    def intended(self, options: FittingOptions | None) -> FittingIntent:
        """What is to be stored with a topic that is created or changed, in the same transaction: nothing may come
        between its placement and its fitting. ``options``: as asked for with it."""
        return lambda spec: self._intention(spec, options)

    def _intention(self, spec: TopicSpec, options: FittingOptions | None) -> FittingRecord | None:
        chosen = self._chosen(spec.name, options)
        if _is_to_be_fitted(spec, chosen):
            return _record(
                spec.name,
                chosen,
                fitting_view.begun(fitting_view.QUEUED, chosen, self._now(), services=self._services(spec.name)),
                running=True,
            )
        remembered = options or self._last_options(spec.name)
        return (
            _record(spec.name, remembered, fitting_view.off(self._services(spec.name)), running=False)
            if remembered is not None
            else None
        )

    def _chosen(self, name: str, options: FittingOptions | None) -> FittingOptions:
        """As asked for, or as the topic was fitted last; nothing by itself where the distributor fits nothing."""
        if options is None and self._default.method != "off":
            return self._last_options(name) or self._default
        return options or self._default

    def _last_options(self, name: str) -> FittingOptions | None:
        record = self._registry.fittings.get(name)
        return None if record is None else parsed_options(record.method, record.rounds_s)

    async def submitted(self, topic: Topic, before: Topic | None, options: FittingOptions | None) -> None:
        """``topic`` was created or changed from ``before``, or sent again. ``options``: as asked for with it. Raises
        Unavailable."""
        changed = before is None or before.removed or before.version != topic.version
        if options is None and not changed:
            return
        chosen = self._chosen(topic.name, options)
        if not _is_to_be_fitted(topic.spec, chosen):
            self.cancel(topic.name)
            record = self._intention(topic.spec, options)
            if record is not None:  # after what the fitting that was cancelled may have noted
                await self._registry.note_fitting(record)
            return
        new = before is None or before.removed
        self.begin(topic.name, chosen, ramp=new and chosen.method == "sequential" and self._has_company(topic))

    def begin(self, name: str, options: FittingOptions, *, ramp: bool = False) -> None:
        """Instead of the fitting of ``name`` that runs, if there is one."""
        self._wishes[name] = _Wish(options, ramp)
        if ramp:
            self._registry.being_fitted.add(name)
        self._wished.set()

    def is_fitting(self, name: str) -> bool:
        """Whether ``name`` is being fitted, or about to be."""
        return name in self._runners or name in self._wishes

    def cancel(self, name: str) -> None:
        self._wishes.pop(name, None)
        if name in self._runners:
            self._runners[name].scope.cancel()

    def check_let_in(self, topic: Topic, publisher_id: str) -> None:
        """Raises Unavailable for a publisher whose turn to be let in has not come."""
        runner, wish = self._runners.get(topic.name), self._wishes.get(topic.name)
        ramp = wish is not None and wish.ramp
        ramp = ramp or (runner is not None and runner.wish.ramp and topic.placement.broker_of(publisher_id) is None)
        if ramp and publisher_id in topic.spec.publishers.positions:
            raise Unavailable(f"the publishers of topic {topic.name} are let in step by step; its turn will come", 1.0)

    def view(self, topic: Topic) -> Json:
        runner = self._runners.get(topic.name)
        if runner is not None:
            run = runner.run
            rounds, measured = (run.rounds, run.latency) if run is not None else ((), {})
            shown = fitting_view.begun(
                runner.state,
                runner.wish.options,
                runner.started_at,
                rounds=rounds,
                measured=measured,
                services=self._services(topic.name, run),
                reason=runner.reason,
            )
        elif topic.name in self._wishes:
            options, services = self._wishes[topic.name].options, self._services(topic.name)
            shown = fitting_view.begun(fitting_view.QUEUED, options, self._now(), services=services)
        else:
            return stored_view(self._registry.fittings.get(topic.name), topic)
        return {"topic": topic.name, **shown}

    async def report(self, broker: str, measurement: str, report: MeasurementReport) -> MeasurementAnswer:
        """What ``broker`` has measured. Raises BadInput."""
        return await self._around.measuring.report(broker, measurement, report)

    async def run(self) -> None:
        """Until cancelled. What was running is begun again."""
        for record in self._registry.fittings.values():
            if record.running and record.topic not in self._wishes:
                self.begin(record.topic, parsed_options(record.method, record.rounds_s))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._around.scaling.run)
            await self._registry.wait_settled()  # a search over those heard so far would end without the others
            while True:
                for name in list(self._wishes):
                    if name in self._runners:
                        self._runners[name].scope.cancel()  # its end brings us back here
                    else:
                        self._start(name, self._wishes.pop(name), nursery)
                await self._wished.wait()
                self._wished = trio.Event()

    def _start(self, name: str, wish: _Wish, nursery: trio.Nursery) -> None:
        runner = self._runners[name] = _Runner(trio.CancelScope(), wish, self._now())
        nursery.start_soon(self._look_after, name, runner)

    async def _look_after(self, name: str, runner: _Runner) -> None:
        try:
            with runner.scope:
                await self._fit_or_fail(name, runner)
        finally:
            self._around.claims.release(name)
            del self._runners[name]
            if name not in self._wishes:
                self._registry.being_fitted.discard(name)
            self._wished.set()

    async def _fit_or_fail(self, name: str, runner: _Runner) -> None:
        """A defect ends this fitting, not the leader; and it has ended: the next leader does not meet it again."""
        try:
            await self._fit(name, runner)
        except Exception as error:  # noqa: BLE001
            self._around.log.failure("a fitting is defective", topic=name, trace=traceback.format_exc())
            await self._conclude(name, runner, fitting_view.FAILED, f"a defect in the distributor: {error!r}")

    async def _fit(self, name: str, runner: _Runner) -> None:
        """Until it ended, one way or the other."""
        await self._note(name, runner, running=True)
        alone = False  # whether it has waited for all others
        while self._is_there(name):
            await self._wait_graces(name, runner)
            if not runner.wish.ramp and self._is_there(name):
                await self._wait_traffic(name, runner)
            await self._wait_turn(name, runner, alone=alone)
            if not self._is_there(name):
                return
            if self._registry.died_lately(self._registry.topic(name)):  # meanwhile
                self._around.claims.release(name)
                continue
            try:
                report = await self._run_once(name, runner)
            except Superseded as error:
                self._around.log.info("a fitting is begun again", topic=name, reason=error)
                runner.wish = replace(runner.wish, ramp=False)
                continue
            except FailedFitting as error:
                await self._conclude(name, runner, fitting_view.FAILED, str(error))
                return
            finally:
                self._around.claims.release(name)
            runner.wish = replace(runner.wish, ramp=False)
            if not report.heard:
                continue
            if report.fits or alone or not (runner.run and runner.run.withheld):
                await self._end(name, runner, report)
                return
            alone = True

    async def _run_once(self, name: str, runner: _Runner) -> Report:
        self._serial += 1
        serial = f"{self._registry.version}.{self._serial}"
        note_full = partial(self._note_full, name)
        runner.run = FittingRun(name, runner.wish.options, self._around, serial, note_full, ramp=runner.wish.ramp)
        runner.state = fitting_view.RUNNING
        self._registry.being_fitted.add(name)
        return await runner.run.run()

    async def _wait_graces(self, name: str, runner: _Runner) -> None:
        """As long as a broker that died may come back to its publishers, nobody moves them."""
        while self._is_there(name) and (died := self._registry.died_lately(self._registry.topic(name))):
            runner.state = fitting_view.QUEUED
            runner.reason = f"{', '.join(died)} died; its publishers keep their places for a while"
            self._let_wait(name, runner)
            with trio.move_on_after(_WAITS_S):
                await self._around.syncing.news.wait()
        runner.reason = ""

    def _let_wait(self, name: str, runner: _Runner) -> None:
        """The topic goes on as it is placed, by rates if it is new: nobody is shut out for as long as others take. From
        then on it is one of those that were there, and has no ramp."""
        runner.wish = replace(runner.wish, ramp=False)
        self._registry.being_fitted.discard(name)

    async def _wait_traffic(self, name: str, runner: _Runner) -> None:
        while self._is_there(name) and not (self._has_traffic(name) or self._may_ask_for_room(name)):
            runner.state = fitting_view.WAITING
            runner.reason = "not measured: no traffic; the placement by rates stands until messages come"
            self._registry.being_fitted.discard(name)
            with trio.move_on_after(_WAITS_S):
                await self._around.syncing.news.wait()
        runner.reason = ""

    def _may_ask_for_room(self, name: str) -> bool:
        """Whether brokers are short before the first message, and somebody can be asked for more."""
        placed = self._registry.topic(name).placement.state == "placed"
        return self._around.scaler is not Scaler.NONE and not placed

    def _has_traffic(self, name: str) -> bool:
        return any(
            name in one and one[name].last_60s.access.count > 0 for one in self._around.syncing.living().values()
        )

    async def _wait_turn(self, name: str, runner: _Runner, *, alone: bool) -> None:
        """Until no other fitting has a broker that this one is on; ``alone``: any broker at all."""
        claims = self._around.claims
        while self._is_there(name):
            others = claims.held_by_others(name)
            mine = self._registry.topic(name).placement.brokers
            if not (others if alone else others.intersection(mine)) and not claims.take(name, mine):
                return
            runner.state, runner.reason = fitting_view.QUEUED, f"other fittings have {', '.join(sorted(others))}"
            self._let_wait(name, runner)
            await claims.released.wait()
        runner.reason = ""

    async def _end(self, name: str, runner: _Runner, report: Report) -> None:
        target_ns = self._registry.topics[name].spec.slo.latency_ns
        services = self._services(name, runner.run)
        shown = fitting_view.ended(report, runner.wish.options, runner.started_at, target_ns, services)
        record = _record(name, runner.wish.options, shown, running=False)
        decision = "\n".join(["fitting: " + shown["explanation"][0], *shown["explanation"][1:]])
        found = runner.run.caps_of(report.full) if runner.run is not None else NO_CAPS
        await insist(
            lambda: self._registry.note_fitting(record, decision=decision, caps=found),
            self._around.log,
        )

    async def _note_full(self, name: str, found: CapacityCaps) -> None:
        """Other fittings, and whoever leads next, are to know of it before this one has ended."""
        await insist(lambda: self._registry.note_full(name, found), self._around.log)

    async def _conclude(self, name: str, runner: _Runner, state: str, reason: str) -> None:
        self._around.log.warning("a fitting ended", topic=name, reason=reason)
        runner.state, runner.reason = state, reason
        found = runner.run.caps_of(runner.run.full) if runner.run is not None else NO_CAPS
        await self._note(name, runner, running=False, found=found)

    async def _note(self, name: str, runner: _Runner, *, running: bool, found: CapacityCaps = NO_CAPS) -> None:
        services, options = self._services(name, runner.run), runner.wish.options
        shown = fitting_view.begun(runner.state, options, runner.started_at, services=services, reason=runner.reason)
        record = _record(name, runner.wish.options, shown, running=running)
        await insist(lambda: self._registry.note_fitting(record, caps=found), self._around.log)

    def _services(self, name: str, run: FittingRun | None = None) -> fitting_view.Services:
        """As ``run`` has recorded them; of other brokers, as they were when ``name`` was fitted before."""
        known = measured_service_us(self._registry.fittings.get(name))
        recorded = run.service_us if run is not None else {}
        return fitting_view.Services({**known, **recorded}, self._around.syncing.lab_service_ns)

    def _is_there(self, name: str) -> bool:
        return self._registry.managed_topic(name) is not None

    def _has_company(self, topic: Topic) -> bool:
        """Whether other topics are on its brokers."""
        return any(
            topic.placement.assigned.keys() & one.placement.assigned.keys()
            for one in self._registry.managed()
            if one.name != topic.name
        )

    def _now(self) -> str:
        return utc(round(self._wall_s() * 1e9))


def stored_view(record: FittingRecord | None, topic: Topic) -> Json:
    """What is known of a fitting that does not run here."""
    shown: Json = fitting_view.off() if record is None else msgspec.json.decode(record.outcome)
    return {"topic": topic.name, **shown}


def measured_service_us(record: FittingRecord | None) -> dict[str, float]:
    """{broker: what a message took of it in the mean}, as that fitting, or an earlier one of the topic, recorded it."""
    return {} if record is None else msgspec.json.decode(record.outcome, type=_Recorded).service_us


def _is_to_be_fitted(spec: TopicSpec, options: FittingOptions) -> bool:
    return options.method != "off" and len(spec.publishers) > 0


def _record(name: str, options: FittingOptions, shown: Json, *, running: bool) -> FittingRecord:
    return FittingRecord(
        topic=name,
        running=running,
        method=options.method,
        rounds_s=options.rounds_s,
        outcome=msgspec.json.encode(shown).decode(),
    )
