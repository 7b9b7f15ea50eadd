"""A simulated fleet in virtual time: publishers in groups that fire together, brokers as an exact bucket and a single
server, whose service times are told as measured. It carries out what a fitting asks for, so that fittings run to their
end in no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from distributor.fitting.events import (
    Action,
    AskScaler,
    Begin,
    Done,
    Event,
    Layout,
    Measure,
    Place,
    Placed,
    Progress,
    Recorded,
    Report,
    ScalerAnswered,
    Seen,
    Steps,
    Stop,
)
from distributor.fitting.layout_loop import LayoutLoop
from distributor.model.columns import Ints
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.placement.share_targets import MIN_SHARE_FRACTION
from distributor.prediction.replay import Delays, Latency, Trace, latency, measured_service_ns
from distributor.prediction.sequential_test import by_interval
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO
from srtm.token_bucket.replay import Server
from srtm.units import MICRO

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Firings:
    """Groups that fire, in order of time."""

    at_ns: Ints
    group: Ints


def firings(groups: int, per_s: float, process: str, seconds: float, seed: int) -> Firings:
    """``process``: "poisson"; "periodic", each group at a random phase; "staggered": periodic, at even phases."""
    rng = np.random.default_rng(seed)
    if process == "poisson":
        group = rng.integers(0, groups, rng.poisson(groups * per_s * seconds))
        at_s = rng.random(len(group)) * seconds
    else:
        phase = rng.random(groups) if process == "periodic" else np.arange(groups) / groups
        turns = int(seconds * per_s)
        group = np.tile(np.arange(groups), turns)
        at_s = (np.repeat(np.arange(turns), groups) + phase[group]) / per_s
    order = np.argsort(at_s)
    return Firings((at_s[order] * 1e9).astype(np.int64), group[order])


Stalls = Sequence[tuple[int, int]]  # (from, to), ns, in order of both: the machine does nothing


def stalls(seconds: float, part: float, longest_ns: int, seed: int) -> Stalls:
    """As drawn: they take ``part`` of the time, none longer than ``longest_ns``, all lengths alike."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(seconds * 1e9 * part / (longest_ns / 2))
    at_ns = np.sort(rng.integers(0, round(seconds * 1e9), count))
    until_ns = np.maximum.accumulate(at_ns + rng.integers(0, longest_ns + 1, count))
    return list(zip(at_ns.tolist(), until_ns.tolist(), strict=True))


def held(at_ns: Ints, stops: Stalls) -> Ints:
    """Instants of what waits for the machine to go on."""
    if not stops:
        return at_ns
    from_ns, to_ns = np.array(stops, dtype=np.int64).T
    last = np.searchsorted(from_ns, at_ns, side="right") - 1
    return np.where(last >= 0, np.maximum(at_ns, to_ns[last]), at_ns)


@dataclass
class _Broker:
    """State that goes on from one stretch of time to the next, and from one share to the next."""

    service_ns: int  # mean
    spread: float = 0.0  # part of it that is drawn anew for every message
    stalls: Stalls = ()
    share_micro: tuple[int, int] = (0, 0)
    work: int = 0  # unfinished, units, at ...
    at_ns: int = 0
    free_ns: int = 0  # when the server has served what it has
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def set(self, share_micro: tuple[int, int], now_ns: int, *, full: bool) -> None:
        """As ``srtm.token_bucket.bucket``: a shrink clamps the fill, a growth mints nothing."""
        fill = self.share_micro[1] * UNITS_PER_MICRO - max(0, self.work - self.share_micro[0] * (now_ns - self.at_ns))
        burst = share_micro[1] * UNITS_PER_MICRO
        self.work = 0 if full else burst - min(fill, burst)
        self.share_micro, self.at_ns = share_micro, now_ns

    def take(self, arrival_ns: Ints) -> Delays:
        if not len(arrival_ns):
            return Delays(access_ns=arrival_ns, processing_ns=arrival_ns)
        rate, burst = self.share_micro
        whole, rest = Server(rate, self.at_ns, self.work).found(arrival_ns)
        self.work, self.at_ns = rate * int(whole[-1]) + int(rest[-1]) + TOKEN, int(arrival_ns[-1])
        free_whole, free_rest = divmod(burst * UNITS_PER_MICRO - TOKEN, rate)
        access_ns = np.maximum(whole - free_whole + (rest > free_rest), 0)
        due_ns = arrival_ns + access_ns
        took_ns = np.full(len(due_ns), round(self.service_ns * (1 - self.spread)))
        if self.spread:
            took_ns += self.rng.exponential(self.service_ns * self.spread, len(due_ns)).astype(np.int64)
        served = np.cumsum(took_ns)
        # A laboratory's server is one of thought: it goes on while the machine stands still, and only what it lets go
        # leaves later.
        ready_ns = held(due_ns, self.stalls) if self.spread else due_ns
        starts = np.maximum.accumulate(ready_ns - (served - took_ns))
        end_ns = served + np.maximum(starts, self.free_ns)
        self.free_ns = int(end_ns[-1])
        left_ns = end_ns if self.spread else held(end_ns, self.stalls)
        return Delays(access_ns=access_ns, processing_ns=left_ns - due_ns)


@dataclass
class _Measurement:
    action: Measure
    from_ns: int  # when it counts
    publisher: list[Ints] = field(default_factory=list)
    arrival_ns: list[Ints] = field(default_factory=list)
    delays: list[Delays] = field(default_factory=list)
    told: int = 0  # parts that Progress has told of


class Fleet:
    """``service_ns``: {broker: its service time}; those that the scaler brings take ``spare``, one after the other.
    ``stalls``: of all of them. Service times without ``spread`` are told as a laboratory tells them: they are known.
    ``stuck``: indices of publishers that stay where they were first."""

    def __init__(
        self,
        demand: Demand,
        batch: int,
        fires: Firings,
        service_ns: Mapping[str, int],
        *,
        percentile: float = 99.0,
        target_ns: int = 1_000_000,
        place_ns: int = 500_000_000,
        report_ns: int = 200_000_000,
        spare: Mapping[str, int] | None = None,
        spread: float = 0.0,
        stalls: Stalls = (),
        stuck: Sequence[int] = (),
    ) -> None:
        self.now_ns = 0
        self._demand = demand
        self._batch = batch
        self._fires = fires
        self._spread = spread
        self._stalls = stalls
        self._brokers = {name: _Broker(took, spread, stalls) for name, took in service_ns.items()}
        self._percentile = percentile
        self._target_ns = target_ns
        self._place_ns = place_ns
        self._report_ns = report_ns
        self._spare = dict(spare or {})
        self._placement: dict[str, Ints] = {}  # {broker: indices of its publishers, by group}
        self._stuck = np.array(stuck, dtype=np.int64)
        self._where: npt.NDArray[np.object_] | None = None  # {publisher index: broker}; None: nowhere yet
        self._begun = False
        self._measurements: dict[str, _Measurement] = {}
        self.asked: list[AskScaler] = []

    @property
    def capacities(self) -> list[BrokerCapacity]:
        return [BrokerCapacity(name=name, mcap=0.0) for name in self._brokers]

    def place(self, layout: Layout, seconds: float = 0.0) -> None:
        """Bring ``layout`` into force, and let so much time pass."""
        self._place(layout)
        self._advance(round(seconds * 1e9))

    def fit(self, fitting: Steps, actions: Sequence[Action]) -> Report:
        """Carry out ``actions``, the first of ``fitting``, and all that follow until it is done."""
        while True:
            for action in actions:
                if isinstance(action, Done):
                    return action.report
            events = [event for action in actions for event in self._carry_out(action)] or self._report()
            actions = []
            for event in events:
                actions += fitting.handle(event, self.now_ns)

    def measured(self, layout: Layout, seconds: float) -> dict[str, Latency]:
        """Of a layout that is in force, from now on, and of other brokers that get messages."""
        found: dict[str, list[Delays]] = {name: [] for name in layout.brokers}
        for name, _, arrival_ns, delays in self._advance(round(seconds * 1e9)):
            if name in found or len(arrival_ns):
                found.setdefault(name, []).append(delays)
        return {name: latency(parts, self._percentile) for name, parts in found.items()}

    def _carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Place):
            self._measurements.clear()
            self._advance(self._place_ns)
            self._place(action.layout)
            return [Placed(round=action.round)]
        if isinstance(action, Measure) and not action.held:
            self._measurements[action.broker] = _Measurement(action, self.now_ns + action.after_ns)
        if isinstance(action, Stop):
            done = self._measurements.pop(action.broker)
            if action.trace_wanted:
                return [Recorded(broker=action.broker, round=action.round, trace=self._trace(action.broker, done))]
        if isinstance(action, AskScaler):
            self.asked.append(action)
            new = dict(list(self._spare.items())[: action.brokers])
            for name, took in new.items():
                self._brokers[name] = _Broker(took, self._spread, self._stalls)
                del self._spare[name]
            return [ScalerAnswered(brokers=tuple(BrokerCapacity(name=name, mcap=0.0) for name in new))]
        return []

    def _place(self, layout: Layout) -> None:
        where = np.array([*layout.brokers, None], dtype=object)[layout.placement]
        if self._where is not None:
            where[self._stuck] = self._where[self._stuck]
        self._where, self._placement = where, {}
        shares = dict(zip(layout.brokers, layout.shares_micro, strict=True))
        for name, broker in self._brokers.items():
            here = np.flatnonzero(where == name)
            self._placement[name] = here[np.argsort(self._demand.groups[here], kind="stable")]
            broker.set(shares.get(name, self._small_share if len(here) else (1, 0)), self.now_ns, full=not self._begun)
        self._begun = True

    @property
    def _small_share(self) -> tuple[int, int]:
        """Of a broker where messages wait and the layout has nobody."""
        return round(MIN_SHARE_FRACTION * self._demand.rate * MICRO), MICRO

    def _trace(self, name: str, done: _Measurement) -> Trace:
        arrival_ns = np.concatenate(done.arrival_ns)
        due_ns = arrival_ns + np.concatenate([part.access_ns for part in done.delays])
        if self._spread:
            sent_ns = due_ns + np.concatenate([part.processing_ns for part in done.delays])
            service_ns = measured_service_ns(due_ns, sent_ns)
        else:
            service_ns = np.full(len(due_ns), self._brokers[name].service_ns)
        return Trace(publisher=np.concatenate(done.publisher), arrival_ns=arrival_ns, service_ns=service_ns)

    def _report(self) -> list[Progress]:
        """Go on until the next report is due."""
        last = max(one.from_ns + one.action.at_least_ns for one in self._measurements.values())
        self._advance(max(self._report_ns, last - self.now_ns))
        return [self._progress(name, one) for name, one in self._measurements.items()]

    def _progress(self, name: str, one: _Measurement) -> Progress:
        delays, one.told = one.delays[one.told :], len(one.delays)
        new = one.arrival_ns[len(one.arrival_ns) - len(delays) :]
        total = np.concatenate([part.total_ns for part in delays])
        return Progress(
            broker=name,
            round=one.action.round,
            intervals=by_interval(np.concatenate(new), total, self._target_ns, self._target_ns),
            latency=latency(one.delays, self._percentile),
            final=self.now_ns - one.from_ns >= one.action.at_most_ns,
        )

    def _advance(self, by_ns: int) -> list[tuple[str, Ints, Ints, Delays]]:
        first, last = np.searchsorted(self._fires.at_ns, [self.now_ns, self.now_ns + by_ns])
        if self.now_ns + by_ns > self._fires.at_ns[-1] + SECOND_NS:
            raise RuntimeError("the simulated traffic is over")
        fired = slice(int(first), int(last))
        self.now_ns += by_ns
        passed = []
        for name, members in self._placement.items():
            publisher, arrival_ns = self._messages(members, fired)
            delays = self._brokers[name].take(arrival_ns)
            passed.append((name, publisher, arrival_ns, delays))
            measuring = self._measurements.get(name)
            if measuring is not None:
                counts = arrival_ns >= measuring.from_ns
                measuring.publisher.append(publisher[counts])
                measuring.arrival_ns.append(arrival_ns[counts])
                measuring.delays.append(
                    Delays(access_ns=delays.access_ns[counts], processing_ns=delays.processing_ns[counts])
                )
        return passed

    def _messages(self, members: Ints, fired: slice) -> tuple[Ints, Ints]:
        """(publisher, arrival) of every message that the ``members``, sorted by group, send."""
        of_group = self._demand.groups[members]
        groups = self._fires.group[fired]
        starts = np.searchsorted(of_group, groups, side="left")
        counts = np.searchsorted(of_group, groups, side="right") - starts
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        publisher = members[np.repeat(starts, counts) + offsets]
        arrival_ns = np.repeat(self._fires.at_ns[fired], counts)
        return np.repeat(publisher, self._batch), np.repeat(arrival_ns, self._batch)


def grouped_demand(publishers: int, group: int, rate: float, envelope: float, burst: float) -> Demand:
    return Demand(rates=np.full(publishers, rate), groups=np.arange(publishers) // group, rate=envelope, burst=burst)


def fits_from(loop: LayoutLoop, begin: Begin, now_ns: int) -> list[Action]:
    """Return the first actions of a search that begins at once."""
    loop.ask()
    loop.handle(Seen(promise="unknown", heard=True), now_ns)
    return loop.handle(begin, now_ns)
