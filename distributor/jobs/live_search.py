"""One search for a layout, live: its actions are carried out on the registry and the brokers, and what happens is
handed in.

What to do is decided by a state machine (``fitting.layout_loop``, ``fitting.paper``); here are its clock and its waits.
Whatever else places the topic meanwhile (a change, a death, a drain) ends the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

import trio

from distributor.fitting.events import (
    Action,
    AskScaler,
    Begin,
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
    Steps,
    Stop,
    Tick,
)
from distributor.fitting.task import begin_of, is_same_task, moves_between, placement_of
from distributor.jobs.layout_environment import LayoutEnvironment, insist
from distributor.measuring import messages as measured
from distributor.model.cluster import Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps, traffic_class
from distributor.placement import joint
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Latency
from srtm.concurrency.background import background_nursery
from srtm.control import Promise
from srtm.errors import Conflict, NotFound, Unavailable
from srtm.text import figure, plural

IN_FORCE_WITHIN_S = 10.0  # then it is measured as it is: a broker or a plain NSQ client may never follow
QUIET_S = 1.2  # every broker has reported once meanwhile
SCALED_WITHIN_S = 30.0  # from the scaler's answer to the first sync of what it started
_LOOK_S = 1.0
_MOST_EVENTS = 100_000


class Superseded(Exception):
    """The topic is not where this search put it any more, or not what it was."""


class LiveSearch:
    """``run`` it once. ``latency`` and ``service_us`` ({broker: what a message took of it in the mean, as recorded
    last}) may be read meanwhile."""

    def __init__(self, name: str, fitting: Steps, around: LayoutEnvironment, serial: str) -> None:
        """``serial``: of no other search."""
        self.latency: dict[str, Latency] = {}
        self.service_us: dict[str, float] = {}
        self._name = name
        self._fitting = fitting
        self._around = around
        self._registry = around.registry
        self._prefix = f"{name}:{serial}:"
        self._topic: Topic = around.registry.topic(name)
        self._arranging = False
        self._known = self._usable()  # brokers, as the search knows them
        self._begin = begin_of(
            self._topic,
            list(self._known.values()),
            scaler=around.scaler,
            caps=around.registry.caps,
            others=self._other_load(),
            pinned={**self._at_home(), **around.registry.pins.of(name)},
        )
        self._asked: dict[str, str] = {}  # {broker: its incarnation when it was asked to measure}
        self._unscaled = ""  # why the scaler brought less than was wanted
        self._send, self._receive = trio.open_memory_channel[Event | Superseded](_MOST_EVENTS)

    @property
    def begin(self) -> Begin:
        """The event that it begins with."""
        return self._begin

    def caps(self, full: Mapping[str, float]) -> CapacityCaps:
        """``full`` ({broker: msg/s that it keeps}) as caps, for the promise and the traffic that are fitted here."""
        spec = self._topic.spec
        return NO_CAPS.with_caps(spec.slo, traffic_class(spec.publishers), full) if full else NO_CAPS

    async def run(self, actions: Sequence[Action]) -> Report:
        """Carry out ``actions``, the first of the search, and all that follow. Raises Superseded."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._watch)
                while True:
                    report = await self._carry_out_all(actions, nursery)
                    if report is not None:
                        return replace(report, unscaled=self._unscaled)
                    actions = await self._next_actions()
        finally:
            self._around.measuring.stop_all(self._prefix)

    async def _next_actions(self) -> list[Action]:
        event = await self._receive.receive()
        if isinstance(event, Superseded):
            raise event
        if isinstance(event, Progress) and event.latency.count:
            self.latency[event.broker] = event.latency
        if isinstance(event, Recorded) and len(event.trace):
            self.service_us[event.broker] = float(event.trace.service_ns.mean()) / 1e3
        known = len(self._fitting.rounds)
        # In a thread: a search over a recording takes seconds, and brokers must be answered meanwhile.
        actions = await trio.to_thread.run_sync(self._fitting.handle, event, now_ns(), abandon_on_cancel=True)
        for number, one in enumerate(self._fitting.rounds[known:], start=known + 1):
            self._tell_of(number, one)
        return actions

    def _tell_of(self, number: int, one: RoundRecord) -> None:
        """What a round took, and how it ended on each broker."""
        ends = [
            f"{name} {one.verdicts[name].value} at {figure(part.total_ns / 1e6)} ms"
            for name, part in one.latency.items()
        ]
        self._around.log.info(
            "a round ended",
            topic=self._name,
            round=number,
            brokers=len(one.layout.brokers),
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
                id_ = f"{self._prefix}{action.round}"
                self._around.measuring.stop(action.broker, id_, trace_wanted=action.trace_wanted)
            elif isinstance(action, AskScaler):
                nursery.start_soon(self._ask_scaler, action)
        return None

    # Placing

    async def _place(self, action: Place, nursery: trio.Nursery) -> None:
        self.latency.clear()
        moved = await self._arrange(action.layout)
        nursery.start_soon(partial(self._wait_in_force, action.round, moved=moved))

    async def _arrange(self, layout: Layout) -> int:
        """How many have to move. Raises Superseded."""
        placement = placement_of(self._topic, layout)
        moves = moves_between(self._topic.placement, placement)
        if not moves:
            return 0
        missing = "" if placement.state == "placed" else f", {figure(placement.missing, 6)} msg/s still to come"
        what = f"fitting: {moves:,} {plural(moves, 'publisher')} to move, {len(placement.brokers)} brokers{missing}"
        expected, found = self._topic.assignment_version, self.caps(self._fitting.full)
        self._arranging = True
        try:
            self._topic = await insist(
                lambda: self._registry.arrange(self._name, expected, placement, what, found), self._around.log
            )
        except (Conflict, NotFound) as error:
            raise Superseded(str(error)) from None
        finally:
            self._arranging = False
        self._around.syncing.layouts.moves += moves
        return moves

    async def _wait_in_force(self, round_: int, *, moved: int) -> None:
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
            if now != seen or not self._are_shares_issued():
                seen, quiet_since_s = now, now_s
            in_force_since_s = min(in_force_since_s, now_s) if self._is_in_force() else math.inf
            if in_force_since_s <= now_s and now_s - quiet_since_s >= quiet_s:
                return now_s - in_force_since_s
            await self._around.syncing.news.wait()

    async def _wait_shares(self) -> None:
        while not self._are_shares_issued():
            await self._around.syncing.news.wait()

    def _undeclared(self) -> dict[str, int]:
        reports = self._around.syncing.sessions.reports(self._name)
        return {name: report.undeclared for name, report in reports.items()}

    def _is_in_force(self) -> bool:
        """And nobody is on his way, and nothing left of what waited meanwhile."""
        topic = self._registry.topics[self._name]
        moved = self._are_shares_issued() and not topic.misplaced
        return moved and all(self._is_drained(topic, name) for name in topic.leases.target)

    def _are_shares_issued(self) -> bool:
        """As targeted, and acknowledged by every broker that is alive."""
        topic, live = self._registry.topics[self._name], self._registry.live()
        leases = topic.leases
        issued = all(
            name in leases.holdings and leases.holdings[name].share == share for name, share in leases.target.items()
        )
        return issued and all(held.is_acknowledged for name, held in leases.holdings.items() if name in live)

    def _is_drained(self, topic: Topic, broker: str) -> bool:
        report = self._around.syncing.sessions.report(broker, self._name)
        return report is not None and report.share_version == topic.holding(broker).version and not report.backlog

    # Measuring

    def _measure(self, action: Measure) -> None:
        broker = self._registry.brokers.get(action.broker)
        if broker is None:  # forgotten just now
            self._leave(action.broker)
            return
        topic, task = self._registry.topics[self._name], self._begin.task
        version, others = topic.holding(action.broker).version, self._promised_to_others(action.broker)
        request = measured.request(action, task, self._prefix, self._name, version, others)
        positions = topic.spec.publishers.positions
        self._around.measuring.begin(action.broker, broker.incarnation, request, action.round, positions, self._tell)
        self._asked[action.broker] = broker.incarnation

    def _promised_to_others(self, broker: str) -> list[Promise]:
        return [
            Promise(topic=one.name, percentile=one.spec.slo.percentile, target_ns=one.spec.slo.latency_ns)
            for one in self._registry.managed()
            if one.name != self._name and broker in one.placement.brokers
        ]

    def _at_home(self) -> dict[str, str]:
        """{publisher: broker}, of clients of several topics: one topic's search would tear them apart."""
        registry, placement = self._registry, self._topic.placement
        found = joint.homes(self._topic.spec, registry.managed(), registry.takes_more())
        return {one: home for one, home in found.items() if placement.broker_of(one) == home}

    def _other_load(self) -> dict[str, float]:
        """{broker: msg/s of other topics}"""
        loads = self._registry.headroom
        found = {name: loads.other_load(name, self._name) for name in self._known}
        return {name: rate for name, rate in found.items() if rate > 0}

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
        """Brokers that come and go, a topic that others have changed, and the time."""
        while True:
            with trio.move_on_after(_LOOK_S):
                await self._around.syncing.news.wait()
            why = self._superseded()
            if why:
                self._tell(Superseded(why))
                return
            usable = self._usable()
            for name in [name for name in self._known if name not in usable]:
                self._leave(name)
            for name, one in usable.items():
                if self._known.get(name) != one:  # it has come, or others have more or less of it
                    self._known[name] = one
                    self._tell(BrokerJoined(broker=one))
            self._tell(Tick())

    def _superseded(self) -> str:
        """Why this search is over; empty: it is not."""
        topic = self._registry.managed_topic(self._name)
        if topic is None or not is_same_task(self._topic.spec, topic.spec):
            return "the topic was changed"
        if topic.assignment_version != self._topic.assignment_version and not self._arranging:
            return "its publishers were placed anew"
        if died := self._registry.died_lately(topic):
            return f"{', '.join(died)} died, and may come back"
        brokers = self._registry.brokers
        anew = [name for name, was in self._asked.items() if name in brokers and brokers[name].incarnation != was]
        return f"{', '.join(anew)} has started anew" if anew else ""

    def _leave(self, name: str) -> None:
        if self._known.pop(name, None) is None:
            return
        self._around.measuring.stop_all(self._prefix, name)
        if name in self._topic.placement.brokers:
            self._tell(Superseded(f"{name} is gone, or takes no publishers"))
        else:
            self._tell(BrokerLeft(broker=name))

    def _usable(self) -> dict[str, BrokerCapacity]:
        """Brokers that this search may use."""
        usable = self._registry.takes_more()
        offered = self._registry.offered(self._topic.spec, ignore_caps=True)
        return {one.name: one for one in offered if one.name in usable}

    def _tell(self, event: Event | Superseded) -> None:
        self._send.send_nowait(event)


def now_ns() -> int:
    """Trio time."""
    return round(trio.current_time() * 1e9)
