"""Traffic that moves from one broker to another, under exact buckets and a controller that hears late: in virtual time.

What a policy sees are 100 ms bins, and changes that the engine's detector finds in slots, some time after their end;
what it proposes is put in force as leases are: first whoever shrinks, then whoever grows. Releases are exact to the
nanosecond (``bench.simulation.buckets``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policy import Policy
from adaptor.topics import change_of
from bench.harness.cluster_runs.recovery import SECOND_NS, Aftermath, Ints
from bench.simulation.buckets import BIN_NS, SLOT_NS, STEP_NS, SimulatedBroker, Stepped
from srtm._native import ChangeDetector
from srtm.control import RateChange
from srtm.units import MICRO


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Poisson traffic whose parts change once."""

    before: tuple[float, ...] = (0.5, 0.5)  # of the load, on each broker
    after: tuple[float, ...] = (0.1, 0.9)
    load: float = 10_000.0  # msg/s
    rate: float = 11_000.0
    burst: float = 25.0
    batch: int = 1
    at_s: float = 20.0
    ends_s: float = 80.0

    @property
    def envelope(self) -> Envelope:
        return Envelope(rate_micro=round(self.rate * MICRO), burst_micro=round(self.burst * MICRO))


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Of the control path, a multiple of 10 ms each."""

    report_s: float = 0.02  # from the end of a bin or slot to the proposal
    shrink_s: float = 0.01  # from there until those who give have given
    grow_s: float = 0.02  # from the proposal until those who get have got


MEASURED = Delay(report_s=0.02, shrink_s=0.01, grow_s=0.03)  # of real brokers on one machine (docs/adaptation.md)


@dataclass(frozen=True)
class ShiftRun:
    """What came of it."""

    aftermath: Aftermath
    proposed: list[tuple[float, Shares]]  # with the time, s
    in_force: list[Shares]  # after each change


class Simulation(Stepped):
    """Brokers under one policy."""

    def __init__(
        self,
        arrivals_ns: Sequence[Ints],
        envelope: Envelope,
        policy: Policy,
        start: Shares,
        *,
        declared: Sequence[float],
        batch: int = 1,
        dispersions: Sequence[float] = (),
        delay: Delay | None = None,
        step_ns: int = STEP_NS,
    ) -> None:
        """``dispersions``: of each broker's traffic, as declared; empty: that of its batches."""
        super().__init__(arrivals_ns, start, step_ns)
        self._envelope, self._policy, self._batch, self._delay = envelope, policy, batch, delay or Delay()
        self._declared = declared  # msg/s of each broker's publishers
        self._dispersions = list(dispersions) or [float(batch)] * len(start)
        self._names = [f"b{at}" for at in range(len(start))]
        self._target = list(start)
        self.proposed: list[tuple[float, Shares]] = []
        self.in_force: list[Shares] = []
        self._detectors = [ChangeDetector() for _ in start]
        self.told = 0  # changes of one broker's share

    def _bin_over(self, now_ns: int, bins: list[Bin]) -> None:
        heard = {name: [one] for name, one in zip(self._names, bins, strict=True)}
        self._at(now_ns, self._delay.report_s, partial(self._control, now_ns, heard))

    def _slot_over(self, now_ns: int, came: list[int]) -> None:
        for name, broker, detector, count in zip(self._names, self.brokers, self._detectors, came, strict=True):
            moved = detector.note(count)
            if moved is not None:
                arrivals, slots = moved
                broker.run(now_ns)
                self._changed(now_ns, name, arrivals, slots * SLOT_NS, broker.waiting)

    def _changed(self, now_ns: int, name: str, arrivals: int, span_ns: int, waiting: int) -> None:
        """On broker ``name``, as seen in the ``span_ns`` before ``now_ns``."""
        known_until_ns = (now_ns - 1) // BIN_NS * BIN_NS  # a bin that ends now is told afterwards
        change = change_of(RateChange(now_ns - span_ns, span_ns, arrivals, waiting), known_until_ns)
        self._at(now_ns, self._delay.report_s, partial(self._control, now_ns, {}, {name: change}))

    def _control(
        self, now_ns: int, heard: Mapping[str, Sequence[Bin]], changes: Mapping[str, Change] | None = None
    ) -> None:
        for name, bins in heard.items():
            self._policy.observe(name, bins, self._dispersions[self._names.index(name)])
        for name, change in (changes or {}).items():
            self._policy.note_change(name, change)
        members = [
            Member(name=name, share=share, batch=self._batch, dispersion=dispersion, declared=declared)
            for name, share, declared, dispersion in zip(
                self._names, self._target, self._declared, self._dispersions, strict=True
            )
        ]
        shares = self._policy.propose(now_ns / SECOND_NS, self._envelope, members)
        if changes and self._policy.due_s is not None:
            due_ns = round(self._policy.due_s * SECOND_NS)
            self._at(due_ns, self._delay.report_s, partial(self._control, due_ns, {}))
        if shares is not None:
            self._propose(now_ns, shares)

    def _propose(self, now_ns: int, shares: Shares) -> None:
        self._target = shares
        self.proposed.append((now_ns / SECOND_NS, shares))
        told_ns = now_ns + round(self._delay.report_s * SECOND_NS)
        self._at(told_ns, self._delay.shrink_s, self._shrink)
        self._at(told_ns, self._delay.grow_s, self._grow)

    def _shrink(self) -> None:
        for broker, target in zip(self.brokers, self._target, strict=True):
            self._set(broker, (min(broker.share[0], target[0]), min(broker.share[1], target[1])))

    def _grow(self) -> None:
        """To the latest target; who gives by it has given first."""
        self._shrink()
        for broker, target in zip(self.brokers, self._target, strict=True):
            self._set(broker, target)
        self.in_force.append([broker.share for broker in self.brokers])

    def _set(self, broker: SimulatedBroker, share: tuple[int, int]) -> None:
        if share != broker.share:
            broker.set(share)
            self.told += 1


def simulate(shift: Shift, policy: Policy, start: Shares, seed: int, delay: Delay | None = None) -> ShiftRun:
    """The whole run under ``policy``, from shares ``start``."""
    declared = [shift.load * part for part in shift.before]
    arrivals_ns = arrivals_of(shift, seed)
    run = Simulation(arrivals_ns, shift.envelope, policy, start, declared=declared, batch=shift.batch, delay=delay)
    at_ns, ends_ns = (round(at_s * SECOND_NS) for at_s in (shift.at_s, shift.ends_s))
    run.run(ends_ns)
    logs = [broker.log() for broker in run.brokers]
    aftermath = Aftermath([arrival for arrival, _ in logs], [due for _, due in logs], at_ns, ends_ns)
    return ShiftRun(aftermath, run.proposed, run.in_force)


def arrivals_of(shift: Shift, seed: int) -> list[Ints]:
    """Of each broker, in order of time, ns."""
    found = []
    for at, (before, after) in enumerate(zip(shift.before, shift.after, strict=True)):
        rng = np.random.default_rng([seed, at])
        pieces = [(0.0, shift.at_s, before), (shift.at_s, shift.ends_s, after)]
        firings = [
            rng.uniform(start_s, end_s, rng.poisson(shift.load * part * (end_s - start_s) / shift.batch))
            for start_s, end_s, part in pieces
        ]
        instants = np.sort(np.concatenate(firings) * SECOND_NS).astype(np.int64)
        found.append(np.repeat(instants, shift.batch))
    return found
