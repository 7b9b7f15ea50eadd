"""Online fitting (section 4.2, step 3): measure a layout, decide, compute the next, until all fit.

A state machine without sockets and without a clock: events in, actions out (``events``). A round is: place
the publishers, measure on all their brokers at once, stop as soon as the answer is clear. Below the target everywhere:
done. Above it anywhere: the arrivals recorded in the round say which layout to try next (``search``), so all brokers
shed at once, from every group in proportion, and k jumps to what the model predicts. A layout that was measured and
found above is not tried again, so the rounds end; but where the model cannot see why it was above, it gets one more
chance, with half the error allowed.

The topics that are already there come first: where there are any, the new one's publishers are let in at 10, 30 and
100 %, and a broker on which another topic's promise is broken for 2 s gives all of them up at once. Their promises are
watched from before the first publisher comes: until shares are in force and what waited meanwhile is gone may take
longer than a broker that is overloaded has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from distributor.fitting.events import (
    Action,
    AskScaler,
    BrokerJoined,
    BrokerLeft,
    Done,
    Event,
    Layout,
    Measure,
    Missing,
    Place,
    Placed,
    Progress,
    Recorded,
    Report,
    RoundRecord,
    Scaler,
    ScalerAnswered,
    Split,
    Stop,
    Task,
)
from distributor.fitting.evidence import Evidence, kept_by, rate_on
from distributor.fitting.layout_model import Recording, recording
from distributor.fitting.moves import let_in, receiving, with_fewest_moves, with_shares, without
from distributor.fitting.round import Watch, replayed, watch_of
from distributor.fitting.search import Outcome, least_measuring_ns, proportional, settle_ns
from distributor.model.columns import NOWHERE
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Latency, Trace
from distributor.prediction.sequential_test import Verdict

SECOND_NS = 1_000_000_000
RAMP = (0.1, 0.3, 1.0)  # parts of the new publishers
BREACH_NS = 2 * SECOND_NS  # a broken promise that lasts longer is no accident; so long is a step of the ramp, too
AT_MOST_NS = 30 * SECOND_NS  # that a layout is measured: then what was seen is taken, certain or not
MOST_ROUNDS = 20  # a model that is wrong so often is no help


class Fitting:
    """``split``: how the bucket is divided."""

    def __init__(
        self,
        task: Task,
        brokers: Sequence[BrokerCapacity],
        split: Split = proportional,
        in_force: Layout | None = None,
    ) -> None:
        """``in_force``: where the publishers are already."""
        self._task = task
        self._brokers = {broker.name: broker for broker in brokers}
        self._split = split
        self._phase: Callable[[Event, int], list[Action]] | None = None  # None: it is over
        self._layout = self._nobody()  # to be measured
        self._in_force = self._before = in_force or self._nobody()  # at this step of the ramp; when it began
        self._round = 0
        self._step = 0  # of the ramp
        self._beside = False  # other topics are where publishers come to
        self._started_ns = self._step_ns = self._settle_ns = 0
        self._watches: dict[str, Watch] = {}
        self._evidence = Evidence()
        self._has_looked = False  # at a replay of what arrived under this layout
        self._is_clear = False  # in it everything is in time
        self._spent_ns = 0  # on measuring this layout, in rounds before the one that is resumed
        self._rounds: list[RoundRecord] = []
        self._gave_up: set[str] = set()  # brokers that were above the target, or that another topic needed
        self._aborted: set[str] = set()  # of these, the latter
        self._asked = math.inf  # brokers that the scaler was asked for since a layout was last tried
        self._at_least_ns = least_measuring_ns(task.demand)
        self._others_worst_ns = 0

    def start(self, now_ns: int) -> list[Action]:
        self._started_ns = now_ns
        return self._try(self._in_force, now_ns) if self._may_begin_with_what_is() else self._next_layout(now_ns)

    def _may_begin_with_what_is(self) -> bool:
        """Whether everybody is somewhere, and nowhere more than is known to be too much."""
        there = self._in_force
        return len(there.brokers) > 0 and NOWHERE not in there.placement and self._may_be(there)

    def _may_be(self, layout: Layout) -> bool:
        """Whether its brokers are there, and none gets more than is known to be too much."""
        full = self._task.full
        return self._brokers.keys() >= set(layout.brokers) and all(
            rate_on(self._task, layout, name) <= full.get(name, math.inf) for name in layout.brokers
        )

    def handle(self, event: Event, now_ns: int) -> list[Action]:
        if isinstance(event, BrokerJoined):
            self._brokers[event.broker.name] = event.broker
            return []
        if isinstance(event, BrokerLeft):
            return self._handle_left(event.broker, now_ns)
        return [] if self._phase is None else self._phase(event, now_ns)

    @property
    def rounds(self) -> Sequence[RoundRecord]:
        return self._rounds

    @property
    def full(self) -> Mapping[str, float]:
        return {name: self._task.full[name] for name in self._aborted}

    # Phases: what the next event means.

    def _placing(self, event: Event, now_ns: int) -> list[Action]:
        if self._is_of_round(event) and self._breaks_others(event, now_ns):
            return self._abort(event.broker, now_ns)
        if not (isinstance(event, Placed) and event.round == self._round):
            return []
        self._phase = self._measuring
        self._step_ns = now_ns
        self._settle_ns = max(0, self._settle_ns - event.calm_ns)
        is_whole = RAMP[self._step] == 1  # else it is the others' latency that is looked at
        return [
            Measure(
                broker=name,
                round=self._round,
                after_ns=self._settle_ns if is_whole else 0,
                at_least_ns=self._at_least_ns,
                at_most_ns=max(self._at_least_ns, AT_MOST_NS - self._spent_ns, BREACH_NS if self._beside else 0),
            )
            for name in self._layout.brokers
        ]

    def _is_of_round(self, event: Event) -> TypeGuard[Progress]:
        return isinstance(event, Progress) and event.round == self._round and event.broker in self._watches

    def _breaks_others(self, event: Progress, now_ns: int) -> bool:
        """Whether the promise to another topic has been broken for too long."""
        watch = self._watches[event.broker]
        self._others_worst_ns = max(self._others_worst_ns, event.others_worst_ns)
        if event.others_kept:
            watch.broken_since_ns = None
        elif event.final:  # nothing more will be heard of it
            return True
        elif watch.broken_since_ns is None:
            watch.broken_since_ns = now_ns
        return watch.broken_since_ns is not None and now_ns - watch.broken_since_ns >= BREACH_NS

    def _measuring(self, event: Event, now_ns: int) -> list[Action]:
        if not self._is_of_round(event):
            return []
        watch = self._watches[event.broker]
        watch.receive(event)
        if self._breaks_others(event, now_ns):
            return self._abort(event.broker, now_ns)
        if RAMP[self._step] < 1:
            return self._climb(now_ns)
        if now_ns - self._step_ns >= self._settle_ns + self._at_least_ns:
            watch.judge()
        return self._end_of_round(now_ns)

    def _climb(self, now_ns: int) -> list[Action]:
        """The next step of the ramp, once every broker has said that it kept its promises for one."""
        calm = all(watch.heard and watch.broken_since_ns is None for watch in self._watches.values())
        if not calm or now_ns - self._step_ns < BREACH_NS:
            return []
        stopped = self._stop_all()
        self._step += 1
        return [*stopped, *self._place(now_ns)]

    def _end_of_round(self, now_ns: int) -> list[Action]:
        watches = self._watches.values()
        above = [watch for watch in watches if watch.is_above]
        if above:
            if any(watch.has_seen_enough for watch in above):
                return self._record(now_ns)
            return []
        if not self._others_are_content(now_ns):
            return []
        if all(watch.verdict is Verdict.BELOW or watch.final for watch in watches):
            self._note_round(now_ns)
            heard = any(watch.test.count for watch in watches)
            certain = all(watch.verdict is Verdict.BELOW for watch in watches)
            done = self._done(now_ns, self._rounds[-1].latency, fits=heard, certain=certain, heard=heard)
            return [*self._stop_all(), done]
        if self._is_clear and all(watch.verdict is Verdict.BELOW or watch.has_come_within for watch in watches):
            return [*self._stop_all(), self._found_clear(now_ns)]
        if not self._has_looked and all(watch.takes_long or watch.verdict is Verdict.BELOW for watch in watches):
            self._has_looked, self._phase = True, self._looking
            return self._stop_all(trace_wanted=True)
        return []

    def _others_are_content(self, now_ns: int) -> bool:
        """Nothing is accepted while another topic's promise is broken, nor beside others before a breach could have
        lasted for long enough to be one."""
        if any(watch.broken_since_ns is not None for watch in self._watches.values()):
            return False
        return not self._beside or now_ns - self._step_ns >= BREACH_NS

    def _record(self, now_ns: int) -> list[Action]:
        """The round is lost; what it has recorded says where to go."""
        self._note_round(now_ns)
        self._phase = self._recording
        return self._stop_all(trace_wanted=True)

    def _recording(self, event: Event, now_ns: int) -> list[Action]:
        traces = self._traces_with(event)
        if traces is None:
            return []
        made = recording(traces)
        if made is not None and self._evidence.is_doubtful(self._task, self._layout, made):
            return self._measure_again(made, now_ns)
        self._evidence.refute(self._layout, self._rounds[-1].latency, made)
        self._gave_up |= {name for name, watch in self._watches.items() if watch.is_above}
        return self._next_layout(now_ns)

    def _traces_with(self, event: Event) -> dict[str, Trace] | None:
        """Once every broker has sent its own."""
        if isinstance(event, Recorded) and event.round == self._round and event.broker in self._watches:
            self._watches[event.broker].trace = event.trace
        traces = {name: watch.trace for name, watch in self._watches.items() if watch.trace is not None}
        return traces if len(traces) == len(self._watches) else None

    def _looking(self, event: Event, now_ns: int) -> list[Action]:
        """Why it takes so long: whether what arrived is clearly in time, had the machine done nothing else."""
        traces = self._traces_with(event)
        if traces is None:
            return []
        blind = any(watch.sees_too_little for watch in self._watches.values())
        self._is_clear = not blind and replayed(self._task, self._layout, traces)
        if self._is_clear and all(watch.is_within for watch in self._watches.values()):
            return [self._found_clear(now_ns)]
        if self._is_clear and not self._evidence.chances(self._layout):
            made = recording(traces)
            assert made is not None  # something was replayed
            self._evidence.doubt(self._layout, made)  # lost after all, it has had its chance
            self._spent_ns = 0
        else:
            self._spent_ns += now_ns - self._step_ns - self._settle_ns
        return self._place(now_ns, {name: watch.resumed() for name, watch in self._watches.items()})

    def _found_clear(self, now_ns: int) -> Done:
        """By what arrived, replayed; what was measured does not speak against it."""
        self._note_round(now_ns)
        return self._done(now_ns, self._rounds[-1].latency, fits=True, certain=True, replayed=True)

    def _measure_again(self, made: Recording, now_ns: int) -> list[Action]:
        self._evidence.doubt(self._layout, made)
        return self._place_anew(now_ns)

    def _scaling(self, event: Event, now_ns: int) -> list[Action]:
        if not isinstance(event, ScalerAnswered):
            return []
        self._brokers.update((broker.name, broker) for broker in event.brokers)
        if not event.brokers:
            self._task = replace(self._task, scaler=Scaler.NONE)
        return self._next_layout(now_ns)

    # What is done.

    def _next_layout(self, now_ns: int) -> list[Action]:
        if len(self._rounds) >= MOST_ROUNDS:
            return self._without(Outcome(found=None, best=self._evidence.best_measured(self._may_be)), now_ns)
        found = self._evidence.next(self._task, list(self._brokers.values()), self._split, self._may_be)
        return self._try(found, now_ns) if isinstance(found, Layout) else self._without(found, now_ns)

    def _without(self, outcome: Outcome, now_ns: int) -> list[Action]:
        """No layout of the brokers there are keeps the promise: ask for more, or end with the best."""
        missing = outcome.missing
        # Again only where those that came have made it less: otherwise no number of them would do.
        if missing is not None and 0 < missing.brokers < self._asked and self._task.scaler is not Scaler.NONE:
            self._phase, self._asked = self._scaling, missing.brokers
            return [AskScaler(brokers=missing.brokers)]
        best = outcome.best
        self._layout = self._nobody()
        if best is not None:
            self._layout = with_fewest_moves(self._in_force, best.layout, self._task.demand)
        elif self._aborted:  # better nowhere than where another topic needs the broker
            self._layout = with_shares(self._in_force.brokers, self._in_force.placement, self._task.demand, self._split)
        placed: list[Action] = []
        if best is not None or self._aborted:  # else what is in force stays
            self._round += 1
            placed = [Place(round=self._round, layout=self._layout)]
        latency = {} if best is None else best.latency
        return [*placed, self._done(now_ns, latency, fits=False, certain=False, missing=missing)]

    def _nobody(self) -> Layout:
        return Layout(brokers=(), placement=np.full(len(self._task.demand.rates), NOWHERE), shares_micro=())

    def _try(self, layout: Layout, now_ns: int) -> list[Action]:
        self._asked = math.inf
        self._before = self._in_force
        self._layout = with_fewest_moves(self._before, layout, self._task.demand)
        others = any(self._brokers[name].allocated > 0 for name in receiving(self._before, self._layout))
        self._beside = others
        self._step = 0 if others else len(RAMP) - 1
        return self._place_anew(now_ns)

    def _place_anew(self, now_ns: int) -> list[Action]:
        """To be measured from nothing on."""
        self._has_looked, self._is_clear, self._spent_ns = False, False, 0
        return self._place(now_ns)

    def _place(self, now_ns: int, resumed: Mapping[str, Watch] | None = None) -> list[Action]:
        self._round += 1
        self._phase = self._placing
        demand, last = self._task.demand, self._in_force
        self._in_force = let_in(self._before, self._layout, RAMP[self._step], demand, self._split)
        left_ns = max(0, self._settle_ns - (now_ns - self._step_ns))
        self._settle_ns = max(left_ns, settle_ns(demand, last, self._in_force))
        self._step_ns = now_ns
        chances, known = self._evidence.chances(self._layout), resumed or {}
        self._watches = {name: known.get(name) or watch_of(self._task, chances) for name in self._layout.brokers}
        return [*self._watch_others(), Place(round=self._round, layout=self._in_force)]

    def _watch_others(self) -> list[Action]:
        if not self._beside:
            return []
        return [Measure(broker=name, round=self._round, held=True) for name in self._layout.brokers]

    def _abort(self, name: str, now_ns: int) -> list[Action]:
        """Another topic needs ``name``: it keeps what it had before this step, nothing after the first."""
        self._note_round(now_ns)
        part = RAMP[self._step - 1] if self._step else 0.0
        kept = part * rate_on(self._task, self._layout, name)
        self._task = replace(self._task, full={**self._task.full, name: kept})
        self._gave_up.add(name)
        self._aborted.add(name)
        self._in_force = without(self._in_force, name)  # whoever is to stay there comes back by the ramp, as a newcomer
        return [*self._stop_all(), *self._next_layout(now_ns)]

    def _handle_left(self, name: str, now_ns: int) -> list[Action]:
        self._brokers.pop(name, None)
        used = name in self._layout.brokers or name in self._in_force.brokers
        self._in_force = without(self._in_force, name)
        if not used or self._phase in (None, self._scaling):
            return []
        self._watches.pop(name, None)
        return [*self._stop_all(), *self._next_layout(now_ns)]

    def _stop_all(self, *, trace_wanted: bool = False) -> list[Action]:
        return [Stop(broker=name, round=self._round, trace_wanted=trace_wanted) for name in self._watches]

    def _note_round(self, now_ns: int) -> None:
        self._rounds.append(
            RoundRecord(
                layout=self._layout,
                started_ns=self._step_ns,
                ended_ns=now_ns,
                verdicts={name: watch.verdict for name, watch in self._watches.items()},
                latency={name: watch.latency for name, watch in self._watches.items()},
            )
        )

    def _done(
        self,
        now_ns: int,
        latency: Mapping[str, Latency],
        *,
        fits: bool,
        certain: bool,
        missing: Missing | None = None,
        replayed: bool = False,
        heard: bool = True,
    ) -> Done:
        self._phase = None
        report = Report(
            fits=fits,
            certain=certain,
            layout=self._layout,
            latency=latency,
            rounds=tuple(self._rounds),
            full=kept_by(self._task, self._layout, self._gave_up, self._aborted, self._evidence.model(self._task)),
            missing=missing,
            others_worst_ns=self._others_worst_ns,
            took_ns=now_ns - self._started_ns,
            replayed=replayed,
            heard=heard,
            unsent={name: watch.unsent_part for name, watch in self._watches.items() if watch.sees_too_little},
        )
        return Done(report=report)
