"""One broker in one round of a fitting: what it has said, and what that means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from distributor.fitting.events import Layout, Progress, Task
from distributor.prediction.replay import Latency, Trace, delays
from distributor.prediction.sequential_test import Intervals, SequentialTest, Verdict, by_interval

# Times one over the part that may be late: so many observations give a percentile to choose a layout by. 150 for p99.
_ENOUGH = 1.5
# So many bursts without a late message are more than enough to be sure of "below", and enough of a trace. 400 for p99.
_LONG = 4.0


@dataclass
class Watch:
    test: SequentialTest
    allowed: float  # part of the messages that may be late
    verdict: Verdict = Verdict.UNDECIDED
    heard: bool = False
    judged: bool = False  # it has measured for as long as it must
    latency: Latency = field(default_factory=Latency)
    final: bool = False
    broken_since_ns: int | None = None  # the promise to another topic
    trace: Trace | None = None
    lost: int = 0  # messages, all of them late: so many came that their latency was dropped
    unsent: int = 0
    unsent_before: int = 0  # in earlier rounds of the same layout
    bursts_before: int = 0
    count_before: int = 0  # messages, and those of them that were late
    late_before: int = 0
    _told_lost: int = 0  # of those, what ``test`` has

    def receive(self, event: Progress) -> None:
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
        self.judged = True
        found = self.test.verdict if self.verdict is Verdict.UNDECIDED else self.verdict
        self.verdict = Verdict.UNDECIDED if found is Verdict.BELOW and self.sees_too_little else found

    @property
    def unsent_part(self) -> float:
        """Of the messages, those that no subscriber took in time: not measured."""
        unsent = self.unsent_before + self.unsent
        return unsent / max(1, unsent + self.test.count)

    @property
    def sees_too_little(self) -> bool:
        return self.unsent_part > self.allowed

    @property
    def is_above(self) -> bool:
        """Clearly; or, where time is up and nothing is clear, by the sample: by all of it, and by what is new."""
        if self.verdict is Verdict.UNDECIDED and self.final:
            return not (self.is_within or self._is_new_within)
        return self.verdict is Verdict.ABOVE

    @property
    def has_seen_enough(self) -> bool:
        """To choose another layout by."""
        return self.final or self._is_long or self.test.blocks * self.allowed >= _ENOUGH

    @property
    def takes_long(self) -> bool:
        """Something keeps it from being clear: late messages, or such as depend on each other."""
        return self.judged and self.verdict is Verdict.UNDECIDED and self._is_long

    @property
    def _is_long(self) -> bool:
        return self.test.bursts * self.allowed >= _LONG

    @property
    def is_within(self) -> bool:
        """By the sample."""
        return self._is_within(0, 0)

    @property
    def has_come_within(self) -> bool:
        """By the sample, since it was resumed: by all of it once there is more to choose by, or by as much as is new
        once that takes long for itself."""
        if self.sees_too_little:
            return False
        bursts = (self.test.bursts - self.bursts_before) * self.allowed
        by_all = bursts >= _ENOUGH and self.is_within
        return by_all or (bursts >= _LONG and self._is_new_within)

    @property
    def _is_new_within(self) -> bool:
        return self._is_within(self.count_before, self.late_before)

    def _is_within(self, count_before: int, late_before: int) -> bool:
        untold = self.lost - self._told_lost
        count, late = self.test.count - count_before + untold, self.test.late - late_before + untold
        return late <= self.allowed * count

    def resumed(self) -> Watch:
        """In the next round of the same layout."""
        self.test.begin_series()
        return Watch(
            self.test,
            self.allowed,
            self.verdict,
            unsent_before=self.unsent_before + self.unsent,
            bursts_before=self.test.bursts,
            count_before=self.test.count,
            late_before=self.test.late,
        )


def watch_of(task: Task, chances: int = 0) -> Watch:
    """``chances``: that the layout has had before. Each halves the error that is allowed."""
    confidence = 1 - (1 - task.confidence) / 2**chances
    return Watch(SequentialTest(task.percentile, confidence), 1 - task.percentile / 100)


def replayed(task: Task, layout: Layout, traces: Mapping[str, Trace]) -> bool:
    """Whether what arrived at each broker, served one after the other as it was, is clearly within the target."""
    for name, share in zip(layout.brokers, layout.shares_micro, strict=True):
        trace = traces[name].without_excess
        test = watch_of(task).test
        test.add(by_interval(trace.arrival_ns, delays(trace, share).total_ns, task.target_ns, task.target_ns))
        if test.verdict is not Verdict.BELOW:
            return False
    return True
