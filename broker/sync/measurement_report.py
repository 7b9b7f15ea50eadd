"""What a broker says of a measurement: reports made from what the engine counted. No clock, no network.

A promise to a topic that was there is looked at once a second: of the messages of that second, at most the fraction
that its percentile allows may have been late.
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
"""Topic and target in ns to a recorder of what arrives from now on. Raises ValueError: the topic has no limit here."""


@dataclass
class _Other:
    """A topic that was there."""

    recorder: Recorder
    kept: bool = True
    unsent: int = 0  # messages, up to the last look


class Others:
    """The promises to other topics, as they were kept in the last whole second. ``worst_ns``: the largest of their
    percentiles in it. Where more messages than may be late were not measured, for nobody took them or anything before
    them in time, it is not known how a second was, nor who stood, broker or subscriber: a promise stays what it was."""

    def __init__(self, record: Record, began_ns: int) -> None:
        self.kept = True
        self.worst_ns = 0
        self._record = record
        self._others: dict[Promise, _Other] = {}
        self._next_ns = began_ns + NS_PER_S

    def look(self, promises: Sequence[Promise], now_ns: int) -> bool:
        """Whether there is news: a second is over. A topic that is not here, or not limited, has had no promise
        broken."""
        self._others = {promise: other for promise, other in self._others.items() if promise in promises}
        for promise in promises:
            if promise not in self._others:
                try:
                    self._others[promise] = _Other(self._record(promise.topic, promise.target_ns))
                except (ValueError, OverflowError):  # the latter: no promise that this broker can measure
                    continue
        if now_ns < self._next_ns:
            return False
        self._next_ns = max(self._next_ns + NS_PER_S, now_ns + NS_PER_S // 2)
        self.worst_ns = max((_look(promise, other) for promise, other in self._others.items()), default=0)
        self.kept = all(other.kept for other in self._others.values())
        return True


def _look(promise: Promise, other: _Other) -> int:
    """At what came since the last time; returns its percentile, ns."""
    recorder, allowed = other.recorder, 100 - promise.percentile  # of a hundred may be late
    recorder.advance()
    recorder.intervals(True)  # nobody asks for them: not to be kept
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
    others: Others,
    incarnation: str,
    sequence: int,
    lab_service_time_ns: int,
    *,
    final: bool,
    last: bool,
) -> MeasurementReport:
    """What was counted since the report before. ``last``: no other follows, so that the present interval is told,
    too."""
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


def report_of_others(others: Others, incarnation: str, sequence: int, lab_service_time_ns: int) -> MeasurementReport:
    """Before anything is measured."""
    return MeasurementReport(
        incarnation=incarnation,
        sequence=sequence,
        others_kept=others.kept,
        others_worst_ns=others.worst_ns,
        lab_service_time_ns=lab_service_time_ns,
    )


def measured_trace(recorder: Recorder) -> MeasuredTrace:
    """What arrived while it was measured, as it is sent."""
    publishers, publisher, first_ns, gap_ns, access_ns, processing_ns = recorder.recording()
    return MeasuredTrace(
        publishers=publishers,
        publisher=publisher,
        first_ns=first_ns,
        gap_ns=gap_ns,
        access_ns=access_ns,
        processing_ns=processing_ns,
    )
