"""Online fitting as the paper has it (section 4.2, step 3; section 6.5): the baseline, with the face of
``layout_loop``.

Rounds of a fixed length. A broker that is within the target in its first round is done. Another one searches, by
halving, for the number of publishers that it can keep, and stops where the percentile is inside 80..100 % of the
target; brokers search side by side. What they give up goes to additional brokers only, as few as its rate needs, and
those go through the same. Publishers that are given up wait, without a broker, until all searches of an iteration are
over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

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
    Missing,
    Outcome,
    Place,
    Placed,
    Progress,
    Report,
    RoundRecord,
    Scaler,
    ScalerAnswered,
    Stop,
    Task,
)
from distributor.fitting.search import missing_by_rate, settle_ns
from distributor.model.columns import NOWHERE, Ints
from distributor.placement.allocation import BrokerCapacity, Demand, plan
from distributor.placement.retention import fair_order
from distributor.prediction.replay import Latency
from distributor.prediction.sequential_test import Verdict
from srtm.token_bucket.exact_split import split_bucket
from srtm.units import MICRO

ROUND_NS = 60_000_000_000
CLOSE_ENOUGH = 0.8  # of the target (footnote 11)
_NOBODY = Demand(rates=np.zeros(0), groups=np.zeros(0, dtype=np.int64), rate=0.0, burst=0.0)


@dataclass
class _Search:
    """One broker's: it keeps the first ``count`` of ``members``, which are in an order that is fair to groups."""

    members: Ints
    count: int
    kept: int = 0  # the most that were within the target
    broken: int | None = None  # the fewest that were not
    is_over: bool = False

    def receive(self, percentile_ns: int, target_ns: int) -> None:
        if percentile_ns > target_ns:
            self.broken = self.count
        else:
            self.kept = self.count
        within = CLOSE_ENOUGH * target_ns <= percentile_ns <= target_ns
        if self.broken is None or within or self.broken - self.kept <= 1:
            self.is_over, self.count = True, self.kept
        else:
            self.count = (self.kept + self.broken) // 2

    @property
    def mine(self) -> Ints:
        return self.members[: self.count]


class PaperFitting:
    """``round_ns``: length of a round."""

    def __init__(self, *, round_ns: int = ROUND_NS) -> None:
        self._round_ns = round_ns
        self._begin(Task(demand=_NOBODY, percentile=99, target_ns=0), (), 0)

    def _begin(self, task: Task, brokers: Sequence[BrokerCapacity], now_ns: int) -> None:
        self._task = task
        self._brokers = {broker.name: broker for broker in brokers}
        self._searches: dict[str, _Search] = {}  # of all brokers that the topic uses, in the order of their coming
        self._waiting = np.arange(len(task.demand.rates))  # publishers without a broker
        self._layout = Layout(brokers=(), placement=np.full(len(self._waiting), NOWHERE), shares_micro=())
        self._round = 0
        self._phase = "over"  # placing | measuring | scaling
        self._started_ns = now_ns
        self._begun_ns = self._settle_ns = 0
        self._latency: dict[str, Latency] = {}  # of each broker, its last round
        self._full: set[str] = set()  # brokers that have given publishers up
        # Brokers that the scaler was asked for last, and publishers that waited then.
        self._asked: tuple[float, float] = (math.inf, math.inf)
        self._heard: set[str] = set()  # brokers that have measured for the whole round
        self._rounds: list[RoundRecord] = []
        self._others_worst_ns = 0

    def handle(self, event: Event, now_ns: int) -> list[Action]:
        match event:
            case Begin():
                self._begin(event.task, event.brokers, now_ns)
                return self._iterate(now_ns)
            case BrokerJoined():
                self._brokers[event.broker.name] = event.broker
            case BrokerLeft():
                return self._handle_left(event.broker, now_ns)
            case ScalerAnswered() if self._phase == "scaling":
                self._brokers.update((broker.name, broker) for broker in event.brokers)
                if not event.brokers:
                    self._task = replace(self._task, scaler=Scaler.NONE)
                return self._iterate(now_ns)
            case Placed(round=self._round) if self._phase == "placing":
                return self._measure(now_ns)
            case Progress(round=self._round) if self._phase == "measuring":
                return self._hear(event, now_ns)
        return []

    @property
    def rounds(self) -> Sequence[RoundRecord]:
        return self._rounds

    @property
    def full(self) -> Mapping[str, float]:
        rates, searches = self._task.demand.rates, self._searches
        kept = {name: searches[name] for name in self._full & searches.keys() if searches[name].count}
        return {name: float(rates[search.members].sum()) for name, search in kept.items()}

    def _iterate(self, now_ns: int) -> list[Action]:
        """Those that wait go to additional brokers."""
        if not len(self._waiting):
            return [self._done(now_ns)]
        demand = self._task.demand
        rest = demand.of(self._waiting)
        unused = [broker for name, broker in self._brokers.items() if name not in self._searches]
        offered = [broker.at_most(self._task.full.get(broker.name, math.inf)) for broker in unused]
        made = plan(rest, offered, self._task.strategy)
        if made.missing or not made.brokers:
            return self._without(now_ns, missing_by_rate(replace(self._task, demand=rest), offered, used=self._used))
        if self._used + len(made.brokers) > demand.burst:
            return self._without(now_ns, Missing(burst=float(self._used + len(made.brokers))))
        for at, name in enumerate(made.brokers):
            members = fair_order(self._waiting[made.placement == at], demand.groups)
            self._searches[name] = _Search(members, len(members))
        self._waiting = self._waiting[:0]
        return self._place()

    def _without(self, now_ns: int, missing: Missing) -> list[Action]:
        # Again only where those that came have made it less: otherwise no number of them would do.
        now, last = (missing.brokers, len(self._waiting)), self._asked
        if self._task.scaler is not Scaler.NONE and missing.brokers and (now[0] < last[0] or now[1] < last[1]):
            self._phase, self._asked = "scaling", now
            return [AskScaler(brokers=missing.brokers)]
        self._round += 1
        self._layout = self._current()
        # Where nobody could be placed at all, what is in force stays.
        placed = [Place(round=self._round, layout=self._layout)] if self._searches else []
        return [*placed, self._done(now_ns, missing)]

    def _place(self) -> list[Action]:
        layout = self._current()
        self._settle_ns = settle_ns(self._task.demand, self._layout, layout)
        self._layout = layout
        self._round += 1
        self._phase = "placing"
        return [Place(round=self._round, layout=layout)]

    def _current(self) -> Layout:
        demand = self._task.demand
        placement = np.full(len(demand.rates), NOWHERE)
        for at, search in enumerate(self._searches.values()):
            placement[search.mine] = at
        assigned = [float(demand.rates[search.mine].sum()) for search in self._searches.values()]
        return Layout(
            brokers=tuple(self._searches), placement=placement, shares_micro=self._shares(placement, assigned)
        )

    def _shares(self, placement: Ints, assigned: Sequence[float]) -> tuple[tuple[int, int], ...]:
        """In proportion to the rates. What those who wait would need stays with nobody, as far as there are tokens."""
        demand = self._task.demand
        rate_micro, burst_micro = round(demand.rate * MICRO), round(demand.burst * MICRO)
        nobodys = float(demand.rates[placement == NOWHERE].sum())
        if not any(assigned):
            return ((0, 0),) * len(assigned)
        if nobodys and (sum(rate > 0 for rate in assigned) + 1) * MICRO <= burst_micro:
            return tuple(split_bucket(rate_micro, burst_micro, [*assigned, nobodys])[:-1])
        return tuple(split_bucket(rate_micro, burst_micro, assigned))

    @property
    def _used(self) -> int:
        """Brokers that have a share."""
        return sum(search.count > 0 for search in self._searches.values())

    def _measure(self, now_ns: int) -> list[Action]:
        self._phase = "measuring"
        self._begun_ns = now_ns
        self._heard = set()
        if not self._active():  # they have left
            return self._end_of_round(now_ns)
        return [
            Measure(
                broker=name,
                round=self._round,
                after_ns=self._settle_ns,
                at_least_ns=self._round_ns,
                at_most_ns=self._round_ns,
            )
            for name in self._active()
        ]

    def _active(self) -> list[str]:
        return [name for name, search in self._searches.items() if not search.is_over]

    def _hear(self, event: Progress, now_ns: int) -> list[Action]:
        self._others_worst_ns = max(self._others_worst_ns, event.others_worst_ns)
        if event.final and event.broker in self._active():
            self._heard.add(event.broker)
            self._latency[event.broker] = event.latency
        return self._end_of_round(now_ns)

    def _end_of_round(self, now_ns: int) -> list[Action]:
        """Once every broker has measured for the whole of it."""
        if not self._heard.issuperset(self._active()):
            return []
        stopped: list[Action] = [Stop(broker=name, round=self._round, trace_wanted=False) for name in self._active()]
        if self._active():
            self._note_round(now_ns)
        for name in self._active():
            self._searches[name].receive(self._latency[name].total_ns, self._task.target_ns)
        if self._active():
            return [*stopped, *self._place()]
        for name, search in self._searches.items():
            if search.count < len(search.members):
                self._full.add(name)
                self._waiting = np.concatenate([self._waiting, search.members[search.count :]])
                search.members = search.mine
        return [*stopped, *self._iterate(now_ns)]

    def _handle_left(self, name: str, now_ns: int) -> list[Action]:
        self._brokers.pop(name, None)
        search = self._searches.pop(name, None)
        if search is None or self._phase == "over":
            return []
        self._waiting = np.concatenate([self._waiting, search.members])
        return self._end_of_round(now_ns) if self._phase == "measuring" else []

    def _note_round(self, now_ns: int) -> None:
        target_ns = self._task.target_ns
        latency = {name: self._latency[name] for name in self._active()}
        self._rounds.append(
            RoundRecord(
                layout=self._layout,
                started_ns=self._begun_ns,
                ended_ns=now_ns,
                verdicts={
                    name: Verdict.ABOVE if one.total_ns > target_ns else Verdict.BELOW for name, one in latency.items()
                },
                latency=latency,
            )
        )

    def _done(self, now_ns: int, missing: Missing | None = None) -> Done:
        self._phase = "over"
        report = Report(
            outcome=Outcome.FITS if missing is None else Outcome.NO_BETTER,
            certain=False,  # a sample of a fixed length says nothing of its error
            layout=self._layout,
            latency=self._latency_now(),
            rounds=tuple(self._rounds),
            full=self.full,
            missing=missing,
            others_worst_ns=self._others_worst_ns,
            took_ns=now_ns - self._started_ns,
        )
        return Done(report=report)

    def _latency_now(self) -> Mapping[str, Latency]:
        return {name: self._latency[name] for name in self._layout.brokers if name in self._latency}
