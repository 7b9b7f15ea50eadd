"""Reports of a measurement, made from what the engine counted. No clock, no network.

The promises to other topics on the broker are checked once a second: of the messages of that second, at most the
fraction that the percentile allows may be late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from srtm.control import MeasuredTrace, MeasurementReport, MeasurementRequest, Promise

NS_PER_S = 1_000_000_000


class Recorder(Protocol):
    """Counts one topic's messages (``srtm._native.Measurement``)."""

    def advance(self) -> None: ...

    def intervals(self, end: bool) -> tuple[list[int], list[int], list[int], list[int]]: ...

    def percentiles(self, percentile: float) -> tuple[int, int, int, int]: ...

    def recent(self, percentile: float) -> tuple[int, int, int]: ...

    def gaps(self) -> tuple[int, int]: ...

    def recording(self) -> tuple[list[str], list[int], int, list[int], list[int], list[int]]: ...


Record = Callable[[str, int], Recorder]
"""(topic, target in ns) -> a recorder of what arrives from now on. Raises ValueError: the topic has no limit."""


@dataclass
class _OtherTopic:
    """A topic that was on the broker before."""

    recorder: Recorder
    kept: bool = True
    unsent: int = 0  # messages, up to the latest check


class OtherPromises:
    """Whether the promises to other topics were kept in the last whole second.

    ``worst_ns`` is the largest of their percentiles in it. If subscribers left more messages unmeasured than may be
    late, that second says nothing, and a promise counts as it did before.
    """

    def __init__(self, record: Record, began_ns: int) -> None:
        self.kept = True
        self.worst_ns = 0
        self._record = record
        self._others: dict[Promise, _OtherTopic] = {}
        self._next_ns = began_ns + NS_PER_S

    def check(self, promises: Sequence[Promise], now_ns: int) -> bool:
        """Count what arrived. Returns whether a second is over, so that there is news.

        A topic that is not here, or has no limit, has no promise to break.
        """
        self._others = {promise: other for promise, other in self._others.items() if promise in promises}
        for promise in promises:
            if promise not in self._others:
                try:
                    self._others[promise] = _OtherTopic(self._record(promise.topic, promise.target_ns))
                except (ValueError, OverflowError):  # OverflowError: this broker cannot measure such a target
                    continue
        if now_ns < self._next_ns:
            return False
        self._next_ns = max(self._next_ns + NS_PER_S, now_ns + NS_PER_S // 2)
        self.worst_ns = max((_check(promise, other) for promise, other in self._others.items()), default=0)
        self.kept = all(other.kept for other in self._others.values())
        return True


def _check(promise: Promise, other: _OtherTopic) -> int:
    """Count the messages since the last check. Returns their percentile, ns."""
    recorder, allowed = other.recorder, 100 - promise.percentile  # of a hundred may be late
    recorder.advance()
    recorder.intervals(True)  # drop them: they are not reported
    count, late, worst_ns = recorder.recent(promise.percentile)
    _, unsent = recorder.gaps()
    missed, other.unsent = unsent - other.unsent, unsent
    is_known = 100 * missed <= (count + missed) * allowed
    if 100 * late > count * allowed:
        other.kept = False
    elif is_known:
        other.kept = True
    return worst_ns


def report(
    request: MeasurementRequest,
    recorder: Recorder,
    others: OtherPromises,
    incarnation: str,
    sequence: int,
    lab_service_time_ns: int,
    *,
    final: bool,
    last: bool,
) -> MeasurementReport:
    """The counts since the report before. ``last`` also reports the open interval, because no other report follows."""
    interval, count, late, latency_ns = recorder.intervals(last)
    measured, access_ns, processing_ns, total_ns = recorder.percentiles(request.percentile)
    lost, unsent = recorder.gaps()
    return MeasurementReport(
        incarnation=incarnation,
        sequence=sequence,
        interval=interval,
        count=count,
        late=late,
        latency_ns=latency_ns,
        measured=measured,
        lost=lost,
        unsent=unsent,
        access_ns=access_ns,
        processing_ns=processing_ns,
        total_ns=total_ns,
        others_kept=others.kept,
        others_worst_ns=others.worst_ns,
        final=final,
        lab_service_time_ns=lab_service_time_ns,
    )


def report_of_others(
    others: OtherPromises, incarnation: str, sequence: int, lab_service_time_ns: int
) -> MeasurementReport:
    """The report before the measurement begins."""
    return MeasurementReport(
        incarnation=incarnation,
        sequence=sequence,
        others_kept=others.kept,
        others_worst_ns=others.worst_ns,
        lab_service_time_ns=lab_service_time_ns,
    )


def measured_trace(recorder: Recorder) -> MeasuredTrace:
    """The trace of the measurement, as a message."""
    publishers, publisher, first_ns, gap_ns, access_ns, processing_ns = recorder.recording()
    return MeasuredTrace(
        publishers=publishers,
        publisher=publisher,
        first_ns=first_ns,
        gap_ns=gap_ns,
        access_ns=access_ns,
        processing_ns=processing_ns,
    )
