"""Traffic that moves from one broker to another, under exact buckets and a controller that hears late: in virtual time.

What a policy sees are 100 ms bins, some time after their end; what it proposes is put in force as leases are: first
whoever shrinks, then whoever grows. Releases are exact to the nanosecond (``srtm.replay``), re-timed at every change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count

import numpy as np

from adaptor.observed import BIN_S, Bin, Envelope, Member, Shares
from adaptor.policy import Policy
from bench.aftermath import SECOND_NS, Aftermath, Ints
from srtm.bucket import TOKEN, UNITS_PER_MICRO
from srtm.replay import NEVER_NS, Server, due_instants
from srtm.splitting import MICRO

BIN_NS = round(BIN_S * SECOND_NS)
_STEP_NS = BIN_NS // 10


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

    report_s: float = 0.02  # from the end of a bin to the proposal
    shrink_s: float = 0.01  # from there until those who give have given
    grow_s: float = 0.02  # from the proposal until those who get have got


class SimulatedBroker:
    """An exact bucket fed in portions."""

    def __init__(self, arrival_ns: Ints, share: tuple[int, int]) -> None:
        self._coming = arrival_ns
        self._next = 0
        self._waiting: Ints = np.zeros(0, dtype=np.int64)
        self._now_ns = 0
        self.share = share
        self._fill = share[1] * UNITS_PER_MICRO
        self._released: list[tuple[Ints, Ints]] = []
        self.work = 0.0  # largest U since it was last set to 0
        self.came = 0  # messages, likewise

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def run(self, until_ns: int) -> None:
        """Let pass what may until then, not included."""
        end = int(np.searchsorted(self._coming, until_ns))
        self._waiting = np.concatenate([self._waiting, self._coming[self._next : end]])
        self.came += end - self._next
        self._next = end
        # Those behind cannot pass before then, however few they were.
        some = self._waiting[: (self._fill + self.share[0] * (until_ns - self._now_ns)) // TOKEN + 2]
        seen_ns = np.maximum(some, self._now_ns)
        due_ns = due_instants(seen_ns, *self.share, self._fill)
        self._note_work(seen_ns)
        passed = int(np.searchsorted(due_ns, until_ns))
        self._released.append((some[:passed], due_ns[:passed]))
        self._waiting = self._waiting[passed:]
        self._fill = self._filled(seen_ns[:passed], until_ns)
        self.work = max(self.work, self.share[1] / MICRO - self._fill / TOKEN + len(self._waiting))
        self._now_ns = until_ns

    def log(self) -> tuple[Ints, Ints]:
        """Arrivals and due instants of all that has come; what still waits is due NEVER_NS."""
        parts = [*self._released, (self._waiting, np.full(len(self._waiting), NEVER_NS))]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def set(self, share: tuple[int, int]) -> None:
        """A shrink clamps the fill, a growth mints nothing."""
        self.share = share
        self._fill = min(self._fill, share[1] * UNITS_PER_MICRO)

    def _filled(self, paid_ns: Ints, until_ns: int) -> int:
        """Tokens left at ``until_ns`` after those who came at ``paid_ns`` were paid for."""
        rate, burst = self.share[0], self.share[1] * UNITS_PER_MICRO
        if rate == 0:
            return self._fill - TOKEN * len(paid_ns)
        server = Server(rate, self._now_ns, burst - self._fill)
        whole, rest = server.found(np.append(paid_ns, until_ns))
        return burst - (rate * int(whole[-1]) + int(rest[-1]))

    def _note_work(self, seen_ns: Ints) -> None:
        rate, burst = self.share[0], self.share[1] * UNITS_PER_MICRO
        if rate and len(seen_ns):
            whole, _ = Server(rate, self._now_ns, burst - self._fill).found(seen_ns)
            self.work = max(self.work, int(whole.max()) * rate / TOKEN + 1)


@dataclass(frozen=True)
class ShiftRun:
    """What came of it."""

    aftermath: Aftermath
    proposed: list[tuple[float, Shares]]  # with the time, s
    in_force: list[Shares]  # after each change


class Simulation:
    """One run under one policy; ``run`` it once."""

    def __init__(self, shift: Shift, policy: Policy, start: Shares, seed: int, delay: Delay) -> None:
        self._shift, self._policy, self._delay = shift, policy, delay
        self._brokers = [
            SimulatedBroker(came, share) for came, share in zip(_arrivals(shift, seed), start, strict=True)
        ]
        self._waiting = [0] * len(start)  # at the start of this bin
        self._target = list(start)
        self._due: list[tuple[int, int, Callable[[], None]]] = []  # instant, order, what happens
        self._order = count()
        self._proposed: list[tuple[float, Shares]] = []
        self._in_force: list[Shares] = []

    def run(self) -> ShiftRun:
        for now_ns in range(_STEP_NS, round(self._shift.ends_s * SECOND_NS) + 1, _STEP_NS):
            for broker in self._brokers:
                broker.run(now_ns)
            if now_ns % BIN_NS == 0:
                self._at(now_ns, self._delay.report_s, partial(self._control, now_ns, self._close_bin()))
            while self._due and self._due[0][0] <= now_ns:
                _, _, happen = heappop(self._due)
                happen()
        logs = [broker.log() for broker in self._brokers]
        at_ns, ends_ns = (round(at_s * SECOND_NS) for at_s in (self._shift.at_s, self._shift.ends_s))
        aftermath = Aftermath([arrival for arrival, _ in logs], [due for _, due in logs], at_ns, ends_ns)
        return ShiftRun(aftermath, self._proposed, self._in_force)

    def _at(self, now_ns: int, after_s: float, happen: Callable[[], None]) -> None:
        heappush(self._due, (now_ns + round(after_s * SECOND_NS), next(self._order), happen))

    def _close_bin(self) -> list[Bin]:
        bins = [
            Bin(broker.came, waiting, broker.work) for broker, waiting in zip(self._brokers, self._waiting, strict=True)
        ]
        for at, broker in enumerate(self._brokers):
            broker.came, broker.work, self._waiting[at] = 0, 0.0, broker.waiting
        return bins

    def _control(self, now_ns: int, bins: list[Bin]) -> None:
        names = [f"b{at}" for at in range(len(bins))]
        for name, one in zip(names, bins, strict=True):
            self._policy.observe(name, [one], float(self._shift.batch))
        members = [
            Member(name=name, share=share, batch=self._shift.batch, dispersion=float(self._shift.batch))
            for name, share in zip(names, self._target, strict=True)
        ]
        shares = self._policy.propose(now_ns / SECOND_NS, self._shift.envelope, members)
        if shares is not None:
            self._target = shares
            self._proposed.append((now_ns / SECOND_NS, shares))
            told_ns = now_ns + round(self._delay.report_s * SECOND_NS)
            self._at(told_ns, self._delay.shrink_s, self._shrink)
            self._at(told_ns, self._delay.grow_s, self._grow)

    def _shrink(self) -> None:
        for broker, target in zip(self._brokers, self._target, strict=True):
            broker.set((min(broker.share[0], target[0]), min(broker.share[1], target[1])))

    def _grow(self) -> None:
        """To the latest target; who gives by it has given first."""
        self._shrink()
        for broker, target in zip(self._brokers, self._target, strict=True):
            broker.set(target)
        self._in_force.append([broker.share for broker in self._brokers])


def simulate(shift: Shift, policy: Policy, start: Shares, seed: int, delay: Delay | None = None) -> ShiftRun:
    """The whole run under ``policy``, from shares ``start``."""
    return Simulation(shift, policy, start, seed, delay or Delay()).run()


def _arrivals(shift: Shift, seed: int) -> list[Ints]:
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
