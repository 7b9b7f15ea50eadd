"""One fitting of one topic, live: its actions are carried out on the registry and the brokers,
and what happens is handed in.

The fitting itself is a state machine (``fitting.state_machine``, ``fitting.paper``); here are its clock, its waits and
their bounds. Whatever else places the topic meanwhile (a change, a death, a drain) ends the run: it is begun again from
there.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TypeVar

import trio

from distributor.fitting.events import (
    Action,
    AnyFitting,
    AskScaler,
    BrokerJoined,
    BrokerLeft,
    Done,
    Event,
    Layout,
    Measure,
    Place,
    Placed,
    Progress,
    Recorded,
    Report,
    RoundRecord,
    ScalerAnswered,
    Stop,
    Task,
)
from distributor.fitting.task import FittingOptions, fitting_of, is_same_task, placement_of, same_places, task_of
from distributor.jobs.fitting_environment import FittingEnvironment
from distributor.model.cluster import Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps, traffic_class
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Latency
from distributor.sync import measurement_messages as measured
from srtm.concurrency.background import background_nursery
from srtm.concurrency.backoff import Backoff
from srtm.control import Promise
from srtm.errors import Conflict, NotFound, SrtmError, Unavailable
from srtm.log import Log
from srtm.text import plural

IN_FORCE_WITHIN_S = 10.0  # then it is measured as it is: a broker or a plain NSQ client may never follow
QUIET_S = 1.2  # every broker has reported once meanwhile
SILENT_S = 15.0  # beyond what it was told to wait and measure; then a broker does not measure at all
SCALED_WITHIN_S = 30.0  # from the scaler's answer to the first sync of what it started
_LOOK_S = 1.0
_MOST_EVENTS = 100_000
_T = TypeVar("_T")


NoteFull = Callable[[CapacityCaps], Awaitable[None]]


class Superseded(Exception):
    """The topic is not where this fitting put it any more, or not what it was."""


class FailedFitting(SrtmError):
    """It cannot go on; the placement stays as it is."""


class FittingRun:
    """``run`` it once. ``rounds``, ``latency`` and ``service_us`` ({broker: what a message took of it in the mean, as
    recorded last}) may be read meanwhile; ``withheld``: brokers that it could not have because another fitting has
    them."""

    def __init__(
        self,
        name: str,
        options: FittingOptions,
        around: FittingEnvironment,
        serial: str,
        note_full: NoteFull,
        *,
        ramp: bool,
    ) -> None:
        """``serial``: of no other run. ``note_full`` is told of all that was found full whenever that is more.
        ``ramp``: let publishers in step by step from none."""
        self.latency: dict[str, Latency] = {}
        self.withheld: set[str] = set()
        self.service_us: dict[str, float] = {}
        self._name = name
        self._options = options
        self._around = around
        self._registry = around.registry
        self._prefix = f"{name}:{serial}:"
        self._note_full, self._noted_full = note_full, dict[str, float]()
        self._ramp = ramp
        self._topic: Topic = around.registry.topic(name)
        self._arranging = False
        self._task: Task = task_of(self._topic, around.scaler, around.registry.caps)
        self._fitting: AnyFitting | None = None
        self._placing_s = self._placed_s = 0.0  # trio time: since when the layout is brought into force; when it was
        self._known: dict[str, BrokerCapacity] = {}  # as the fitting knows them
        self._bounds_s: dict[tuple[str, str], float] = {}  # {(broker, measurement): silence that is too long}
        self._unscaled = ""  # why the scaler brought less than was wanted
        self._send, self._receive = trio.open_memory_channel[Event | Superseded | FailedFitting](_MOST_EVENTS)

    @property
    def rounds(self) -> Sequence[RoundRecord]:
        return self._fitting.rounds if self._fitting is not None else ()

    @property
    def full(self) -> Mapping[str, float]:
        """{broker: msg/s that it keeps}, of those found full so far."""
        return self._fitting.full if self._fitting is not None else {}

    def caps_of(self, full: Mapping[str, float]) -> CapacityCaps:
        """``full`` ({broker: msg/s that it keeps}) as caps, for the promise and the traffic that are fitted here."""
        spec = self._topic.spec
        return NO_CAPS.with_caps(spec.slo, traffic_class(spec.publishers), full) if full else NO_CAPS

    async def run(self) -> Report:
        """Raises Superseded, FailedFitting."""
        self._known = self._usable()
        self._fitting = fitting_of(self._topic, self._task, list(self._known.values()), self._options, ramp=self._ramp)
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._watch)
                actions = self._fitting.start(_now_ns())
                while True:
                    report = await self._carry_out_all(actions, nursery)
                    if report is not None:
                        return replace(report, unscaled=self._unscaled)
                    actions = await self._next_actions()
        finally:
            self._around.measuring.stop_all(self._prefix)

    async def _next_actions(self) -> list[Action]:
        event = await self._receive.receive()
        if isinstance(event, Superseded | FailedFitting):
            raise event
        if isinstance(event, Progress) and event.latency.count:
            self.latency[event.broker] = event.latency
        if isinstance(event, Recorded) and len(event.trace):
            self.service_us[event.broker] = float(event.trace.service_ns.mean()) / 1e3
        if isinstance(event, Placed):
            self._placed_s = trio.current_time()
        assert self._fitting is not None
        known = len(self._fitting.rounds)
        # In a thread: a search over a recording takes seconds, and brokers must be answered meanwhile.
        actions = await trio.to_thread.run_sync(self._fitting.handle, event, _now_ns(), abandon_on_cancel=True)
        for number, one in enumerate(self._fitting.rounds[known:], start=known + 1):
            self._tell_of(number, one)
        if self.full != self._noted_full:
            self._noted_full = dict(self.full)
            await self._note_full(self.caps_of(self._noted_full))
        return actions

    def _tell_of(self, number: int, one: RoundRecord) -> None:
        """What a round took, and how it ended on each broker."""
        ends = [
            f"{name} {one.verdicts[name].value} at {part.total_ns / 1e6:.3g} ms" for name, part in one.latency.items()
        ]
        self._around.log.info(
            "a round ended",
            topic=self._name,
            round=number,
            brokers=len(one.layout.brokers),
            placing_s=round(self._placed_s - self._placing_s, 3),
            measuring_s=round((one.ended_ns - one.started_ns) / 1e9, 3),
            found=", ".join(ends),
        )

    async def _carry_out_all(self, actions: Sequence[Action], nursery: trio.Nursery) -> Report | None:
        for action in actions:
            if isinstance(action, Done):
                return action.report
            if isinstance(action, Place):
                await self._place(action, nursery)
            elif isinstance(action, Measure):
                self._measure(action)
            elif isinstance(action, Stop):
                self._around.measuring.stop(
                    action.broker, f"{self._prefix}{action.round}", trace_wanted=action.trace_wanted
                )
            else:
                nursery.start_soon(self._ask_scaler, action)
        return None

    # Placing

    async def _place(self, action: Place, nursery: trio.Nursery) -> None:
        taken = self._around.claims.take(self._name, action.layout.brokers)
        if taken:
            self.withheld |= taken
            for name in taken:
                self._leave(name)
            self._tell(Placed(round=action.round))  # as far as it can be
            return
        self.latency.clear()
        self._placing_s = trio.current_time()
        moved = await self._arrange(action.layout)
        nursery.start_soon(partial(self._wait_in_force, action.round, moved=moved))

    async def _arrange(self, layout: Layout) -> bool:
        """Whether anybody has to move. Raises Superseded."""
        placement = placement_of(self._topic, layout)
        if same_places(placement, self._topic.placement):
            return False
        missing = "" if placement.state == "placed" else f", {placement.missing:,.6g} msg/s still to come"
        what = f"fitting: tries {len(placement.brokers)} brokers{missing}"
        expected, found = self._topic.assignment_version, self.caps_of(self.full)
        self._arranging = True
        try:
            self._topic = await insist(
                lambda: self._registry.arrange(self._name, expected, placement, what, found), self._around.log
            )
        except (Conflict, NotFound) as error:
            raise Superseded(str(error)) from None
        finally:
            self._arranging = False
        return True

    async def _wait_in_force(self, round_: int, *, moved: bool) -> None:
        """Until shares are in force and publishers are where they should be, or for as long as is worth waiting. There
        is no such calm while some have no place: they go on sending where they are."""
        calm_s = 0.0
        with trio.move_on_after(IN_FORCE_WITHIN_S):
            if self._topic.placement.missing:
                await self._wait_shares()
            else:
                calm_s = await self._wait_calm(QUIET_S if moved else 0.0)
        self._tell(Placed(round=round_, calm_ns=round(calm_s * 1e9)))

    async def _wait_calm(self, quiet_s: float) -> float:
        """Until all is in force, and no broker has counted a message of somebody who belongs elsewhere for so long; for
        how long all has been in force."""
        seen, quiet_since_s, in_force_since_s = self._undeclared(), trio.current_time(), math.inf
        while True:
            now_s, now = trio.current_time(), self._undeclared()
            if now != seen or not self._are_shares_in_force():
                seen, quiet_since_s = now, now_s
            in_force_since_s = min(in_force_since_s, now_s) if self._is_in_force() else math.inf
            if in_force_since_s <= now_s and now_s - quiet_since_s >= quiet_s:
                return now_s - in_force_since_s
            await self._around.syncing.news.wait()

    async def _wait_shares(self) -> None:
        while not self._are_shares_in_force():
            await self._around.syncing.news.wait()

    def _undeclared(self) -> dict[str, int]:
        reports = self._around.syncing.reports
        return {name: one[self._name].undeclared for name, one in reports.items() if self._name in one}

    def _is_in_force(self) -> bool:
        """And nobody is on his way, and nothing left of what waited meanwhile."""
        topic = self._registry.topics[self._name]
        moved = self._are_shares_in_force() and not topic.misplaced
        return moved and all(self._is_drained(topic, name) for name in topic.leases.target)

    def _are_shares_in_force(self) -> bool:
        """As targeted, and acknowledged by every broker that is alive."""
        topic, live = self._registry.topics[self._name], self._registry.live()
        leases = topic.leases
        issued = all(
            name in leases.holdings and leases.holdings[name].share == share for name, share in leases.target.items()
        )
        return issued and all(held.is_acknowledged for name, held in leases.holdings.items() if name in live)

    def _is_drained(self, topic: Topic, broker: str) -> bool:
        report = self._around.syncing.report(broker, self._name)
        return report is not None and report.share_version == topic.holding(broker).version and not report.backlog

    # Measuring

    def _measure(self, action: Measure) -> None:
        broker = self._registry.brokers.get(action.broker)
        if broker is None:  # forgotten just now
            self._leave(action.broker)
            return
        topic = self._registry.topics[self._name]
        version, others = topic.holding(action.broker).version, self._others(action.broker)
        request = measured.request(action, self._task, self._prefix, self._name, version, others)
        positions = topic.spec.publishers.positions
        self._around.measuring.begin(action.broker, broker.incarnation, request, action.round, positions, self._tell)
        wait_ns = action.after_ns + max(action.at_least_ns, request.report_ns)
        self._bounds_s[action.broker, request.id] = wait_ns / 1e9 + SILENT_S

    def _others(self, broker: str) -> list[Promise]:
        return [
            Promise(
                topic=one.name,
                percentile=one.spec.slo.percentile,
                target_ns=one.spec.slo.latency_ns,
            )
            for one in self._registry.managed()
            if one.name != self._name and broker in one.placement.brokers
        ]

    # Scaling

    async def _ask_scaler(self, action: AskScaler) -> None:
        before = self._registry.takes_more()
        self._around.log.info("the scaler is asked", topic=self._name, brokers=action.brokers)
        try:
            await self._around.scaling.ask(action.brokers)
            self._unscaled = await self._await_scaled(before, action.brokers)
        except Unavailable as error:
            self._unscaled = str(error)
        if self._unscaled:
            self._around.log.warning("the scaler did not bring them", topic=self._name, reason=self._unscaled)
        came = {name: one for name, one in self._usable().items() if name not in before}
        self._known.update(came)
        self._tell(ScalerAnswered(brokers=tuple(came.values())))

    async def _await_scaled(self, before: Set[str], wanted: int) -> str:
        """Why they did not come; empty: they are there."""
        with trio.move_on_after(SCALED_WITHIN_S):
            while len(self._registry.takes_more() - before) < wanted:
                await self._around.syncing.news.wait()
            return ""
        came = len(self._registry.takes_more() - before)
        return f"{came} of {wanted} {plural(wanted, 'broker')} came within {SCALED_WITHIN_S:g} s"

    # What else happens

    async def _watch(self) -> None:
        """Brokers that come and go, brokers that do not answer, a topic that others have changed."""
        while True:
            with trio.move_on_after(_LOOK_S):
                await self._around.syncing.news.wait()
            topic = self._registry.managed_topic(self._name)
            if topic is None or not is_same_task(self._topic.spec, topic.spec):
                self._tell(Superseded("the topic was changed"))
                return
            if topic.assignment_version != self._topic.assignment_version and not self._arranging:
                self._tell(Superseded("its publishers were placed anew"))
                return
            died = self._registry.died_lately(topic)
            if died:
                self._tell(Superseded(f"{', '.join(died)} died, and may come back"))
                return
            usable = self._usable()
            for name in [name for name in self._known if name not in usable]:
                self._leave(name)
            for name, one in usable.items():
                if self._known.get(name) != one:  # it has come, or others have more or less of it
                    self._known[name] = one
                    self._tell(BrokerJoined(broker=one))
            self._look_at_measurements()

    def _look_at_measurements(self) -> None:
        for (broker, id_), bound_s in list(self._bounds_s.items()):
            silent_s = self._around.measuring.silent_s(broker, id_)
            if silent_s is None:
                self._bounds_s.pop((broker, id_))
            elif broker in self._registry.brokers and self._registry.brokers[
                broker
            ].incarnation != self._around.measuring.incarnation(broker, id_):
                self._tell(Superseded(f"{broker} has started anew"))
            elif silent_s > bound_s:
                self._tell(FailedFitting(f"{broker} has not reported its measurement for {silent_s:.0f} s"))

    def _leave(self, name: str) -> None:
        if self._known.pop(name, None) is not None:
            self._around.measuring.stop_all(self._prefix, name)
            self._tell(BrokerLeft(broker=name))

    def _usable(self) -> dict[str, BrokerCapacity]:
        """Brokers that this fitting may use."""
        usable = self._registry.takes_more() - self._around.claims.held_by_others(self._name)
        offered = self._registry.offered(self._topic.spec, ignore_caps=True)
        return {one.name: one for one in offered if one.name in usable}

    def _tell(self, event: Event | Superseded | FailedFitting) -> None:
        self._send.send_nowait(event)


async def insist(call: Callable[[], Awaitable[_T]], log: Log) -> _T:
    """Until the store can be reached."""
    backoff, told = Backoff(first_s=0.2, longest_s=5.0), False
    while True:
        try:
            return await call()
        except Unavailable as error:
            if not told:
                log.warning("a fitting waits", reason=error)
            told = True
            await trio.sleep(backoff.next_s())


def _now_ns() -> int:
    return round(trio.current_time() * 1e9)
