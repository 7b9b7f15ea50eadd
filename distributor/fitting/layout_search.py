"""One search for a layout: measure, explain, predict, place, judge, take back. Pure.

``layout_loop`` begins it; ``transitions`` has the states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

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
    Recorded,
    Report,
    RoundRecord,
    Scaler,
    ScalerAnswered,
    Stop,
    Task,
    Tick,
)
from distributor.fitting.evidence import Evidence, NoneLeft, Over
from distributor.fitting.layout_model import key, recording
from distributor.fitting.moves import let_in, moved, receiving, with_fewest_moves, with_shares, without
from distributor.fitting.search import least_measuring_ns, settle_ns
from distributor.fitting.transitions import Machine, Rules, State, Trigger
from distributor.fitting.watch import BREACH_NS, Lateness, Watches, is_clear, is_in_time, watch_of
from distributor.model.columns import NOWHERE
from distributor.prediction.replay import Trace
from distributor.prediction.sequential_test import Verdict
from srtm.text import figure

SECOND_NS = 1_000_000_000
AT_MOST_NS = 30 * SECOND_NS  # that a layout is measured: then what was seen is taken, certain or not
SILENT_NS = 15 * SECOND_NS  # beyond what a broker was told to wait and measure; whoever has not moved by then stays
SCALED_WITHIN_NS = 180 * SECOND_NS  # the operator's command has two minutes, brokers 30 s to come
JUDGED_BY_NS = 5 * SECOND_NS  # of messages: those of publishers that did not move may wait long for tokens
PASSES_WITHIN_NS = 120 * SECOND_NS  # what makes a layout late whose replay is in time
SEARCH_AT_MOST_NS = 600 * SECOND_NS
_MOST_PARTS = 10  # that the publishers of one layout move in


class Search:
    """One search of a loop, from the layout in force to an outcome."""

    def __init__(self, rules: Rules, machine: Machine, begin: Begin, now_ns: int) -> None:
        self.rounds: list[RoundRecord] = []
        self._known = Evidence(rules, begin)
        self._rules, self._machine, self._split = rules, machine, begin.split
        self._first = begin.in_force or self._nobody()  # the layout that it began with
        self._layout = self._in_force = self._before = self._first  # to be judged; at this step of it; before it
        self._was: Lateness | None = None  # under the layout before
        self._last_ns = math.inf  # the percentile when this layout was measured before
        self._round = self._part = self._parts = 0
        # Brokers that get publishers by the layout; under ``always`` also by that which was submitted.
        self._coming = set(self._first.brokers) if rules.always else set()
        self._beside = False  # other topics are there
        self._in_force_ns = now_ns  # the layout that is judged
        self._started_ns = self._step_ns = self._settle_ns = self._due_ns = now_ns
        self._watches = Watches()
        self._wanted = math.inf  # brokers that the scaler was asked for since a layout was last tried
        least_ns = 0 if rules.always else JUDGED_BY_NS
        self._at_least_ns = max(least_ns, least_measuring_ns(begin.task.demand))
        self._others_worst_ns = 0
        self._ending: tuple[Outcome, str, Missing | None] | None = None  # once all is back

    @property
    def full(self) -> dict[str, float]:
        """{broker: msg/s that it keeps}, of those that broke another topic's promise."""
        return self._known.full

    @property
    def _task(self) -> Task:
        return self._known.task

    def begin(self, now_ns: int) -> list[Action]:
        """The first actions."""
        there = self._first
        if there.is_complete and self._known.may_be(there):
            self._machine.go(Trigger.BEGUN, now_ns)
            return self._measure(now_ns, 0)
        if there.is_complete and not self._rules.always:
            return self._end(now_ns, Outcome.NO_BROKER, "a broker of the topic is gone, or takes no publishers")
        return self._next(now_ns)

    def handle(self, event: Event, now_ns: int) -> list[Action]:
        match event:
            case BrokerJoined():
                self._known.brokers[event.broker.name] = event.broker
            case BrokerLeft():
                return self._handle_left(event.broker, now_ns)
            case Tick():
                return self._look_at_the_time(now_ns)
            case ScalerAnswered() if self._machine.state is State.SCALING:
                self._known.brokers.update((broker.name, broker) for broker in event.brokers)
                if not event.brokers:
                    self._known.task = replace(self._task, scaler=Scaler.NONE)
                return self._next(now_ns)
            case Placed(round=self._round):
                return self._handle_placed(event, now_ns)
            case Progress(round=self._round) if event.broker in self._watches:
                return self._handle_progress(event, now_ns)
            case Recorded(round=self._round) if event.broker in self._watches:
                return self._handle_recorded(event, now_ns)
        return []

    # Measuring

    def _measure(self, now_ns: int, settle_ns: int) -> list[Action]:
        """All brokers of the layout, and those that it left: some publishers may not have moved. ``settle_ns``: for
        buckets to fill."""
        self._step_ns, self._settle_ns = now_ns, settle_ns
        at_most_ns = max(self._at_least_ns, AT_MOST_NS)
        self._due_ns = now_ns + settle_ns + at_most_ns + SILENT_NS
        left = [name for name in self._before.brokers if name in self._known.brokers]
        self._watches = Watches((name, watch_of(self._task)) for name in dict.fromkeys([*self._layout.brokers, *left]))
        return [
            Measure(
                broker=name,
                round=self._round,
                after_ns=settle_ns,
                at_least_ns=self._at_least_ns,
                at_most_ns=at_most_ns,
            )
            for name in self._watches
        ]

    def _handle_progress(self, event: Progress, now_ns: int) -> list[Action]:
        watch, state = self._watches[event.broker], self._machine.state
        self._others_worst_ns = max(self._others_worst_ns, event.others_worst_ns)
        if state is State.PLACING:
            watch.heard = True
            if event.broker in self._coming and watch.breaks_others(event, now_ns):
                return self._abort(event.broker, now_ns)
            return self._climb(now_ns)
        if state not in (State.MEASURING, State.JUDGING):
            return []
        watch.receive(event)
        if event.broker in self._coming and watch.breaks_others(event, now_ns):
            return self._abort(event.broker, now_ns)
        if now_ns - self._step_ns >= self._settle_ns + self._at_least_ns:
            watch.judge()
        return self._end_of_round(now_ns)

    def _end_of_round(self, now_ns: int) -> list[Action]:
        above = [watch for watch in self._watches.values() if watch.is_above]
        if above:
            is_told = any(watch.has_seen_enough for watch in above) or self._is_worse(now_ns)
            return self._record(Trigger.LATE, now_ns) if is_told else []
        if not self._others_are_content(now_ns):
            return []
        here = [self._watches[name] for name in self._layout.brokers]
        if all(watch.verdict is Verdict.BELOW or watch.final for watch in here):
            return self._accept(now_ns, certain=all(watch.verdict is Verdict.BELOW for watch in here))
        is_long = all(watch.takes_long or watch.verdict is Verdict.BELOW for watch in here)
        return self._record(Trigger.UNCLEAR, now_ns) if is_long and self._last_ns == math.inf else []

    def _is_worse(self, now_ns: int) -> bool:
        """Whether the layout is later than the one before would be by now."""
        return self._was is not None and 0 < self._was.by(now_ns) < self._watches.worst.latency.total_ns

    def _accept(self, now_ns: int, *, certain: bool) -> list[Action]:
        """Nothing speaks against the layout."""
        self._note_round(now_ns)
        stopped, watches = self._stop_all(), self._watches.values()
        if any(watch.test.count for watch in watches):
            return [*stopped, *self._end(now_ns, Outcome.FITS, certain=certain)]
        unsent = any(watch.unsent for watch in watches)
        return [*stopped, *self._end(now_ns, Outcome.NO_CONSUMER if unsent else Outcome.NO_TRAFFIC)]

    def _record(self, why: Trigger, now_ns: int) -> list[Action]:
        self._note_round(now_ns)
        self._due_ns = now_ns + SILENT_NS
        self._machine.go(why, now_ns)
        return self._stop_all(trace_wanted=True)

    def _others_are_content(self, now_ns: int) -> bool:
        """Nothing is accepted while another topic's promise is broken, nor beside others before a breach could have
        lasted for long enough to be one."""
        return self._watches.are_content and not (self._beside and now_ns - self._step_ns < BREACH_NS)

    # Explaining

    def _handle_recorded(self, event: Recorded, now_ns: int) -> list[Action]:
        self._watches[event.broker].trace = event.trace
        traces = self._watches.traces
        if self._machine.state is not State.EXPLAINING or len(traces) < len(self._watches):
            return []
        above, made, last_ns = self._watches.above, recording(traces), self._last_ns
        self._last_ns = self._watches.worst.latency.total_ns
        if not above and self._is_clear(traces):
            return self._end(now_ns, Outcome.FITS, certain=True)
        if not above or (made is not None and self._last_ns < last_ns and self._will_pass(above, traces, now_ns)):
            self._round += 1
            self._machine.go(Trigger.DOUBTFUL, now_ns)
            return self._measure(now_ns, 0)
        if self._was is not None and self._is_worse(self.rounds[-1].ended_ns):
            return self._take_back_worse(self._was.worst_ns, now_ns)
        if made is None:
            return self._end(now_ns, Outcome.NO_BETTER, "nothing of what arrived was recorded")
        self._known.learn(self._layout, self.rounds[-1].latency, made, above)
        worst = self._watches.worst
        self._was = Lateness(worst_ns=worst.latency.total_ns, rise=worst.rise, at_ns=self.rounds[-1].ended_ns)
        return self._next(now_ns)

    def _is_clear(self, traces: Mapping[str, Trace]) -> bool:
        """Whether the promise is kept by what arrived, replayed, and the sample does not speak against it: what keeps
        it from being clear is the machine, which stood still."""
        return self._watches.are_within and is_clear(self._task, self._layout, traces)

    def _will_pass(self, above: set[str], traces: Mapping[str, Trace], now_ns: int) -> bool:
        """Whether what arrived at the brokers that are late would have been in time, replayed: a queue from before
        drains, or the machine stood still. What came to a broker that the layout has left passes only if it moves."""
        is_late = now_ns - self._in_force_ns >= PASSES_WITHIN_NS or not above <= set(self._layout.brokers)
        return not is_late and is_in_time(self._task, self._layout, traces)

    # Predicting

    def _next(self, now_ns: int) -> list[Action]:
        """Try the next layout, ask for brokers, or end."""
        if not self._known.brokers and self._task.scaler is Scaler.NONE:
            return self._end(now_ns, Outcome.NO_BROKER)
        match self._known.next_layout(self._in_force):
            case Layout() as layout:
                return self._try(layout, now_ns)
            case NoneLeft(missing=missing):
                return self._without(now_ns, missing)
            case Over(outcome=outcome, reason=reason, missing=missing):
                return self._end(now_ns, outcome, reason, missing=missing)

    def _without(self, now_ns: int, missing: Missing | None) -> list[Action]:
        """No layout of the brokers there are is to be tried: ask for more, or end with the one in force."""
        # Again only where those that came have made it less: otherwise no number of them would do.
        if missing is not None and 0 < missing.brokers < self._wanted and self._task.scaler is not Scaler.NONE:
            self._wanted, self._due_ns = missing.brokers, now_ns + SCALED_WITHIN_NS
            self._machine.go(Trigger.SHORT, now_ns)
            return [AskScaler(brokers=missing.brokers)]
        if not self._known.overfull(self._in_force):
            return self._end(now_ns, Outcome.NO_BETTER, missing=missing)
        self._before = self._in_force
        self._machine.go(Trigger.WORSE, now_ns)
        return self._place_back(now_ns, Outcome.NO_BETTER, missing=missing)

    # Acting

    def _try(self, layout: Layout, now_ns: int) -> list[Action]:
        self._known.tried += 1
        self._last_ns = math.inf
        self._wanted = math.inf
        self._before = self._in_force
        self._layout = with_fewest_moves(self._before, layout, self._task.demand)
        self._coming = receiving(self._before, self._layout)
        takers = [self._known.brokers[name] for name in self._coming if name in self._known.brokers]
        self._beside = any(broker.allocated > 0 for broker in takers)
        parts = math.ceil(max(1, moved(self._before, self._layout)) / self._rules.moves)
        self._part, self._parts = 0, min(_MOST_PARTS, parts) if self._beside else 1
        self._machine.go(Trigger.BETTER, now_ns)
        return self._place(now_ns)

    def _place(self, now_ns: int) -> list[Action]:
        self._round += 1
        self._part += 1
        demand = self._task.demand
        self._in_force = let_in(self._before, self._layout, self._part / self._parts, demand, self._split)
        self._settle_ns = settle_ns(demand, self._before, self._in_force)
        self._step_ns, self._due_ns = now_ns, now_ns + SILENT_NS
        self._watches = Watches((name, watch_of(self._task)) for name in self._layout.brokers)
        held = self._watches if self._beside else ()
        return [
            *(Measure(broker=name, round=self._round, held=True) for name in held),
            Place(round=self._round, layout=self._in_force),
        ]

    def _handle_placed(self, event: Placed, now_ns: int) -> list[Action]:
        if self._machine.state is State.TAKING_BACK:
            return self._handle_back(now_ns)
        if self._machine.state is not State.PLACING:
            return []
        if self._part < self._parts:
            self._step_ns, self._due_ns = now_ns, now_ns + SILENT_NS
            return self._climb(now_ns)
        self._machine.go(Trigger.IN_FORCE, now_ns)
        self._in_force_ns = now_ns
        broken_ns = {name: watch.broken_since_ns for name, watch in self._watches.items()}
        actions = self._measure(now_ns, max(0, self._settle_ns - event.calm_ns))
        for name, watch in self._watches.items():
            watch.broken_since_ns = broken_ns.get(name)
        return actions

    def _climb(self, now_ns: int) -> list[Action]:
        """The next publishers move once every broker has kept the promises of other topics for as long as a breach
        takes."""
        if self._part >= self._parts or not self._watches.are_calm or now_ns - self._step_ns < BREACH_NS:
            return []
        stopped = self._stop_all()
        self._machine.go(Trigger.STEP, now_ns)
        return [*stopped, *self._place(now_ns)]

    # Taking back

    def _take_back_worse(self, before_ns: int, now_ns: int) -> list[Action]:
        """The layout is clearly late, and later than the one before would be by now."""
        self._machine.go(Trigger.WORSE, now_ns)
        now_ms, before_ms = self._watches.worst.latency.total_ns / 1e6, before_ns / 1e6
        why = f"p{self._task.percentile:g} {figure(now_ms)} ms, {figure(before_ms)} ms before"
        return self._place_back(now_ns, Outcome.TAKEN_BACK, f"it was worse: {why}")

    def _abort(self, name: str, now_ns: int) -> list[Action]:
        """Another topic needs ``name``: it keeps what it had of this one before."""
        state, stopped = self._machine.state, self._stop_all()
        if state is not State.PLACING:
            self._note_round(now_ns)
        kept = 0.0 if state is State.MEASURING else self._known.rate_on(self._before, name)
        self._known.give_way(name, kept)
        self._machine.go(Trigger.OTHERS_BROKEN, now_ns)
        if state is State.MEASURING:
            return [*stopped, *self._next(now_ns)]
        why = f"the promise of another topic was broken at {name}"
        return [*stopped, *self._place_back(now_ns, Outcome.TAKEN_BACK, why)]

    def _place_back(
        self,
        now_ns: int,
        outcome: Outcome,
        reason: str = "",
        missing: Missing | None = None,
    ) -> list[Action]:
        """Whoever was where others need the broker waits."""
        self._ending = outcome, reason, missing
        self._round += 1
        back, overfull = self._before, self._known.overfull(self._before)
        if overfull:
            left = reduce(without, overfull, back)
            back = with_shares(left.brokers, left.placement, self._task.demand, self._split)
        self._layout = self._in_force = back
        self._due_ns = now_ns + SILENT_NS
        return [Place(round=self._round, layout=self._in_force)]

    def _handle_back(self, now_ns: int) -> list[Action]:
        assert self._ending is not None
        outcome, reason, missing = self._ending
        return self._end(now_ns, outcome, reason, missing=missing)

    # Ending

    def _handle_left(self, name: str, now_ns: int) -> list[Action]:
        """Layouts that use it cannot be judged any more."""
        self._known.brokers.pop(name, None)
        if name not in self._watches or self._machine.state in (State.SCALING, State.TAKING_BACK):
            return []
        return self._give_up(now_ns, Outcome.NO_BROKER, f"{name} is gone, or takes no publishers")

    def _look_at_the_time(self, now_ns: int) -> list[Action]:
        state = self._machine.state
        if now_ns - self._started_ns >= SEARCH_AT_MOST_NS and state is not State.TAKING_BACK:
            return self._give_up(now_ns, Outcome.TIME_UP)
        if now_ns < self._due_ns:
            return []
        if state is State.PLACING and self._part == self._parts:
            return self._handle_placed(Placed(round=self._round), now_ns)
        if state is State.TAKING_BACK:
            return self._handle_back(now_ns)
        if state is State.SCALING:
            return self.handle(ScalerAnswered(), now_ns)
        return self._give_up(
            now_ns, Outcome.SILENT, f"{', '.join(self._watches.silent)} did not report what it measured"
        )

    def _give_up(self, now_ns: int, outcome: Outcome, reason: str = "") -> list[Action]:
        """Nothing is known of the layout in force: the one before comes back, if its brokers are there."""
        stopped, before, state = self._stop_all(), self._before, self._machine.state
        has_acted = state in (State.PLACING, State.JUDGING, State.EXPLAINING) and key(before) != key(self._in_force)
        if has_acted or state is State.PLACING:
            self._machine.go(Trigger.WORSE, now_ns)
        if has_acted and before.is_complete and self._known.may_be(before):
            return [*stopped, *self._place_back(now_ns, outcome, reason)]
        return [*stopped, *self._end(now_ns, outcome, reason)]

    def _end(
        self,
        now_ns: int,
        outcome: Outcome,
        reason: str = "",
        *,
        certain: bool = False,
        missing: Missing | None = None,
    ) -> list[Action]:
        measured = [one.latency for one in self.rounds if key(one.layout) == key(self._in_force)]
        report = Report(
            certain=certain,
            outcome=outcome,
            reason=reason,
            layout=self._in_force,
            latency=measured[-1] if measured else {},
            rounds=tuple(self.rounds),
            full=self._known.all_full(self._in_force),
            missing=missing,
            others_worst_ns=self._others_worst_ns,
            took_ns=now_ns - self._started_ns,
            unsent={name: watch.unsent_part for name, watch in self._watches.items() if watch.sees_too_little},
        )
        return [Done(report=report)]

    def _stop_all(self, *, trace_wanted: bool = False) -> list[Action]:
        return [Stop(broker=name, round=self._round, trace_wanted=trace_wanted) for name in self._watches]

    def _note_round(self, now_ns: int) -> None:
        self.rounds.append(
            RoundRecord(
                layout=self._layout,
                started_ns=self._step_ns,
                ended_ns=now_ns,
                verdicts={name: watch.verdict for name, watch in self._watches.items()},
                latency=self._watches.latency,
            )
        )

    def _nobody(self) -> Layout:
        return Layout(brokers=(), placement=np.full(len(self._task.demand.rates), NOWHERE), shares_micro=())
