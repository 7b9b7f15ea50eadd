"""One broker while a layout is measured: what it has said, and what that means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from distributor.fitting.events import Layout, Progress, Task
from distributor.fitting.layout_model import CLEAR
from distributor.prediction.replay import Latency, Trace, delays, latency
from distributor.prediction.sequential_test import Intervals, SequentialTest, Verdict, by_interval

BREACH_NS = 2_000_000_000  # a promise that is broken for longer is no accident
# Times one over the part that may be late: so many observations give a percentile to choose a layout by. 150 for p99.
_ENOUGH = 1.5
# So many bursts without a late message are more than enough to be sure of "below". 400 for p99.
_LONG = 4.0


@dataclass
class Watch:
    """``allowed``: part of the messages that may be late. ``target_ns``: also the length of an interval."""

    test: SequentialTest
    allowed: float
    target_ns: int
    verdict: Verdict = Verdict.UNDECIDED
    latency: Latency = field(default_factory=Latency)
    heard: bool = False
    final: bool = False
    broken_since_ns: int | None = None  # the promise to another topic
    trace: Trace | None = None
    lost: int = 0  # messages, all of them late: so many came that their latency was dropped
    unsent: int = 0  # messages that no subscriber took in time
    _told_lost: int = 0  # of those lost, what ``test`` has

    def receive(self, event: Progress) -> None:
        """Take what a broker has measured since its last word."""
        self.lost, self.unsent = max(self.lost, event.lost), max(self.unsent, event.unsent)
        self.test.add(self._with_lost(event.intervals))
        self.latency = event.latency
        self.final |= event.final
        self.heard = True

    def _with_lost(self, intervals: Intervals) -> Intervals:
        """When it arrived nobody knows: it is late all over what came meanwhile, and changes no mean latency."""
        lost = self.lost - self._told_lost
        if not lost or not len(intervals):
            return intervals
        self._told_lost = self.lost
        more = np.diff(np.arange(len(intervals) + 1) * lost // len(intervals))
        return replace(
            intervals,
            count=intervals.count + more,
            late=intervals.late + more,
            latency_ns=intervals.latency_ns + intervals.latency_ns // intervals.count * more,
        )

    def judge(self) -> None:
        """What was not measured may all be late: where it is more than may be, nothing is surely within."""
        found = self.test.verdict if self.verdict is Verdict.UNDECIDED else self.verdict
        self.verdict = Verdict.UNDECIDED if found is Verdict.BELOW and self.sees_too_little else found

    def breaks_others(self, event: Progress, now_ns: int) -> bool:
        """Whether the promise to another topic has been broken for too long."""
        if event.others_kept:
            self.broken_since_ns = None
        elif event.final:  # nothing more will be heard of it
            return True
        elif self.broken_since_ns is None:
            self.broken_since_ns = now_ns
        return self.broken_since_ns is not None and now_ns - self.broken_since_ns >= BREACH_NS

    @property
    def unsent_part(self) -> float:
        """Of the messages, those that no subscriber took in time: not measured."""
        return self.unsent / max(1, self.unsent + self.test.count)

    @property
    def sees_too_little(self) -> bool:
        return self.unsent_part > self.allowed

    @property
    def takes_long(self) -> bool:
        """Something keeps it from being clear: a machine that stood still, or messages that depend on each other."""
        return self.verdict is Verdict.UNDECIDED and self._is_long

    @property
    def _is_long(self) -> bool:
        return self.test.bursts * self.allowed >= _LONG

    @property
    def is_above(self) -> bool:
        """Clearly; or, where time is up and nothing is clear, by the sample."""
        if self.verdict is Verdict.UNDECIDED and self.final:
            return not self.is_within
        return self.verdict is Verdict.ABOVE

    @property
    def rise(self) -> float:
        """By how much latency grows, ns in a ns, from the first fifth of the intervals to the last: above 0 where a
        queue grows."""
        series = self.test.series
        fifth = len(series) // 5
        if not fifth:
            return 0.0
        means = series.latency_ns / series.count
        passed_ns = (series.at[-fifth:].mean() - series.at[:fifth].mean()) * self.target_ns
        return float((means[-fifth:].mean() - means[:fifth].mean()) / passed_ns)

    @property
    def is_within(self) -> bool:
        """By the sample."""
        unsent = self.lost - self._told_lost
        return self.test.late + unsent <= self.allowed * (self.test.count + unsent)

    @property
    def has_seen_enough(self) -> bool:
        """To choose another layout by."""
        return self.final or self._is_long or self.test.blocks * self.allowed >= _ENOUGH


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """What was measured at the latest broker of a layout, until ``at_ns``."""

    worst_ns: int
    rise: float
    at_ns: int

    def by(self, now_ns: int) -> float:
        """Its percentile if the layout had stayed, ns: it would have got later as fast as it did."""
        return self.worst_ns + max(0.0, self.rise) * (now_ns - self.at_ns)


class Watches(dict[str, Watch]):
    """{broker: what it has said}, of all that measure one layout."""

    @property
    def worst(self) -> Watch:
        """Of the broker with the worst percentile."""
        return max(self.values(), key=lambda watch: watch.latency.total_ns)

    @property
    def above(self) -> set[str]:
        return {name for name, watch in self.items() if watch.is_above}

    @property
    def are_within(self) -> bool:
        """By the sample, which has seen enough of what was sent."""
        return all(watch.is_within and not watch.sees_too_little for watch in self.values())

    @property
    def are_content(self) -> bool:
        """The promises of other topics are kept, as far as is known."""
        return all(watch.broken_since_ns is None for watch in self.values())

    @property
    def are_calm(self) -> bool:
        """All were heard, and the promises of other topics are kept."""
        return self.are_content and all(watch.heard for watch in self.values())

    @property
    def silent(self) -> list[str]:
        """Those that have not reported all that they measured."""
        return sorted(name for name, watch in self.items() if not (watch.final or watch.trace is not None))

    @property
    def traces(self) -> dict[str, Trace]:
        """{broker: what arrived there}, of those that told."""
        return {name: watch.trace for name, watch in self.items() if watch.trace is not None}

    @property
    def latency(self) -> dict[str, Latency]:
        return {name: watch.latency for name, watch in self.items()}


def watch_of(task: Task) -> Watch:
    return Watch(SequentialTest(task.percentile, task.confidence), 1 - task.percentile / 100, task.target_ns)


def is_in_time(task: Task, layout: Layout, traces: Mapping[str, Trace]) -> bool:
    """Whether what arrived at each broker, served one after the other as it was, keeps 96 % of the promise."""
    shares = zip(layout.brokers, layout.shares_micro, strict=True)
    found = (latency([delays(traces[name], share)], task.percentile) for name, share in shares)
    return all(one.total_ns <= CLEAR * task.target_ns for one in found)


def is_clear(task: Task, layout: Layout, traces: Mapping[str, Trace]) -> bool:
    """Whether what arrived at each broker, served one after the other as it was, is clearly within the target."""
    for name, share in zip(layout.brokers, layout.shares_micro, strict=True):
        trace = traces[name]
        test = watch_of(task).test
        test.add(by_interval(trace.arrival_ns, delays(trace, share).total_ns, task.target_ns, task.target_ns))
        if test.verdict is not Verdict.BELOW:
            return False
    return True
