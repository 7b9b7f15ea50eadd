"""A policy that hears what the product's brokers tell, and when: reports come as ``broker.history.schedule`` makes
them due, and ``adaptor.topics`` makes of them, and of silence, what it does in the product."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

from adaptor.observations import Bin, Envelope, Shares
from adaptor.policy import Policy
from adaptor.topics import TopicStates
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.simulation.buckets import BIN_NS, STEP_NS, SimulatedBroker
from bench.simulation.gdrl_exchange import Exchanging
from bench.simulation.shifting_traffic import Simulation
from broker.events import RateChanged
from broker.history.bins import EngineBins, EngineHistories
from broker.history.schedule import HistorySchedule, Poll
from srtm._native import DriftDetector
from srtm.control import BrokerHistory, BrokerTraits, HistoryAnswer, Share, TopicHistories, TopicHistory, TopicTraits
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

_TOPIC = "demand"
_VERSION = 1  # of every share
_KEPT = 128  # bins, by the engine


class Reporting(Simulation):
    """As ``Simulation``, with each broker's own detection of change: once a second, at once, or four times a second."""

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
        step_ns: int = STEP_NS,
        tells_all: bool = False,
    ) -> None:
        """``tells_all``: each bin at once, whatever the product's brokers would leave out."""
        super().__init__(
            *(arrivals_ns, envelope, policy, start),
            declared=declared,
            batch=batch,
            dispersions=dispersions,
            step_ns=step_ns,
        )
        self.reports = 0  # sent
        self._tells_all = tells_all
        self._states = TopicStates()
        self._due_s = math.inf  # when the policy is to be asked without news
        self._traits = _traits(policy.settings, self._names, declared, self._dispersions, batch)
        self._reporters = [_Reporter(may_be_seldom=self._policy.mode == "fitted") for _ in start]

    @property
    def messages(self) -> int:
        """Of control: reports, proposals, and each change of one broker's share with its acknowledgement."""
        return self.reports + len(self.proposed) + 2 * self.told

    def _bin_over(self, now_ns: int, bins: list[Bin]) -> None:
        if self._policy.mode == "static":
            return
        reports = [
            BrokerHistory(broker=name, history=report)
            for name, reporter, one, broker in zip(self._names, self._reporters, bins, self.brokers, strict=True)
            for report in reporter.bin_over(now_ns, one, broker.share)
        ]
        if self._tells_all:
            reports = [
                BrokerHistory(broker=name, history=_history(now_ns, one))
                for name, one in zip(self._names, bins, strict=True)
            ]
        if reports:
            self._tell(now_ns, reports)

    def _changed(self, now_ns: int, name: str, arrivals: int, span_ns: int, waiting: int) -> None:
        if self._policy.mode == "static":
            return
        moved = RateChanged(_TOPIC, _VERSION, now_ns - span_ns, span_ns, arrivals, waiting)
        report = self._reporters[self._names.index(name)].rate_changed(moved, now_ns)
        if report is not None:
            self._tell(now_ns, [BrokerHistory(broker=name, history=report)])

    def _set(self, broker: SimulatedBroker, share: tuple[int, int]) -> None:
        if share != broker.share:
            self._reporters[self.brokers.index(broker)].share_changed(self._now_ns)
        super()._set(broker, share)

    def _tell(self, now_ns: int, reports: list[BrokerHistory]) -> None:
        self.reports += len(reports)
        self._at(now_ns, self._delay.report_s, partial(self._hear, now_ns, reports))

    def _hear(self, now_ns: int, reports: list[BrokerHistory]) -> None:
        """``reports``, sent at ``now_ns``; none: the policy is due."""
        histories = TopicHistories(
            topic=_TOPIC,
            mode=self._policy.mode,
            rate=self._envelope.rate_micro / MICRO,
            burst=self._envelope.burst_micro / MICRO,
            version=_VERSION,
            shares={
                name: Share(version=_VERSION, rate=rate / MICRO, burst=burst / MICRO)
                for name, (rate, burst) in zip(self._names, self._target, strict=True)
            },
            reports=reports,
            traits=self._traits,
        )
        found = self._states.take(HistoryAnswer(version=_VERSION, topics=[histories]), now_ns / SECOND_NS)
        if self._states.due_s != self._due_s and math.isfinite(self._states.due_s):
            due_ns = round(self._states.due_s * SECOND_NS)
            self._at(due_ns, self._delay.report_s, partial(self._hear, due_ns, []))
        self._due_s = self._states.due_s
        for proposal in found:
            shares = [proposal.shares[name] for name in self._names]
            self._propose(now_ns, [(round(one.rate * MICRO), round(one.burst * MICRO)) for one in shares])


def _history(now_ns: int, one: Bin) -> TopicHistory:
    """Of the bin that ended at ``now_ns``."""
    return TopicHistory(
        topic=_TOPIC,
        share_version=_VERSION,
        first_ns=now_ns - BIN_NS,
        arrivals=[one.arrivals],
        waiting=[one.waiting],
        unfinished=[one.work],
    )


def _traits(
    settings: Adaptation, names: Sequence[str], declared: Sequence[float], dispersions: Sequence[float], batch: int
) -> TopicTraits:
    return TopicTraits(
        window_s=settings.window_s,
        interval_s=settings.interval_s,
        floor=settings.floor,
        dead_band=settings.dead_band,
        brokers={
            name: BrokerTraits(batch=batch, dispersion=dispersion, rate=rate)
            for name, rate, dispersion in zip(names, declared, dispersions, strict=True)
        },
    )


def under_mode(
    mode: Mode,
    settings: Adaptation,
    arrivals_ns: Sequence[Ints],
    envelope: Envelope,
    start: Shares,
    declared: Sequence[float],
    seed: int,
    batch: int = 1,
) -> Reporting | Exchanging:
    """Not run yet. ``declared``: msg/s of each broker's publishers."""
    if mode == "gdrl":
        return Exchanging(arrivals_ns, envelope, start, settings, seed)
    return Reporting(arrivals_ns, envelope, Policy(mode, settings), start, declared=declared, batch=batch)


class _Reporter:
    """One broker: what its engine keeps and tells, and what is reported of that."""

    def __init__(self, *, may_be_seldom: bool) -> None:
        self._schedule = HistorySchedule()
        self._schedule.follow([_TOPIC], [_TOPIC] if may_be_seldom else [])
        self._kept: deque[tuple[Bin, bool]] = deque(maxlen=_KEPT)  # with whether a message waited
        self._drift: DriftDetector | None = None  # None: not watched
        self._schedule.take_watch_change()

    def bin_over(self, now_ns: int, one: Bin, share: tuple[int, int]) -> list[TopicHistory]:
        """The reports that are due as the bin ends at ``now_ns``."""
        waits = one.waiting > 0 or one.work > share[1] / MICRO
        self._kept.append((one, waits))
        if self._drift is not None:
            drifts = self._drift.note(now_ns // BIN_NS - 1, one.arrivals)
            if drifts or waits:
                self._move(now_ns)
        poll, reports = self._schedule.poll(), []
        if poll.topics:
            reports += self._schedule.due_reports(self._histories(now_ns, poll), now_ns)
        if (whole := self._schedule.whole()) is not None:
            reports += self._schedule.whole_reports(self._histories(now_ns, whole), now_ns)
        change = self._schedule.take_watch_change()
        if change is not None and change.added:
            self._drift = DriftDetector(now_ns // BIN_NS)
        return reports

    def rate_changed(self, moved: RateChanged, now_ns: int) -> TopicHistory | None:
        """The report of a change that the engine told."""
        self._move(now_ns)
        return self._schedule.rate_changed(moved, now_ns)

    def share_changed(self, now_ns: int) -> None:
        """The topic moves: whoever moved the share goes by what comes."""
        self._move(now_ns)

    def _move(self, now_ns: int) -> None:
        """The topic is not steady now: what the engine kept meanwhile is added, and it is watched no longer."""
        if (resting := self._schedule.resting([_TOPIC])) is not None:
            self._schedule.move(self._histories(now_ns, resting), resting.topics)
            self._schedule.take_watch_change()
            self._drift = None
        self._schedule.disturb(_TOPIC)

    def _histories(self, now_ns: int, poll: Poll) -> EngineHistories:
        """The answer of the engine. Of delays only whether there were any."""
        until = now_ns // BIN_NS
        bins = list(self._kept)[-(until - poll.since) :] if poll.since < until else []
        told = EngineBins(
            topic=_TOPIC,
            version=_VERSION,
            first=until - len(bins),
            arrivals=[one.arrivals for one, _ in bins],
            waiting=[one.waiting for one, _ in bins],
            unfinished=[one.work for one, _ in bins],
            delay_ns=[int(waits) for _, waits in bins],
            supply=[],
        )
        nothing = not any(one.demand or one.work for one, _ in bins)
        return EngineHistories(until=until, bin_ns=BIN_NS, wall_offset_ns=0, topics=[] if nothing else [told])
