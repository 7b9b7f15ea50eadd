"""Converts between a fitting's values and the messages to and from brokers: requests down, checked reports up. Pure.

Every column of a report is checked. BadInput names the column that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distributor.fitting.events import Measure, Progress, Task
from distributor.model.columns import Ints
from distributor.prediction.replay import Latency, Trace, measured_service_ns
from distributor.prediction.sequential_test import Intervals
from srtm.control import MeasuredTrace, MeasurementReport, MeasurementRequest, Promise
from srtm.errors import BadInput

MAX_COLUMN_LENGTH = 10_000_000
MAX_SERVICE_NS = 10**10
_MAX_NS = 1 << 60  # 36 years; also of the sum of a column
_MAX_WALL_NS = 1 << 62  # wall clock: the year 2116


def request(
    action: Measure, task: Task, prefix: str, topic: str, share_version: int, others: Sequence[Promise]
) -> MeasurementRequest:
    """The request for a broker. ``prefix`` begins the ids of this fitting, and of no other."""
    return MeasurementRequest(
        id=f"{prefix}{action.round}",
        topic=topic,
        percentile=task.percentile,
        target_ns=task.target_ns,
        share_version=share_version,
        after_ns=action.after_ns,
        at_least_ns=action.at_least_ns,
        at_most_ns=action.at_most_ns,
        held=action.held,
        others=list(others),
    )


def progress(broker: str, round_: int, report: MeasurementReport) -> Progress:
    """The report as an event of the fitting. Raises BadInput."""
    _check_equal_lengths(
        {"interval": report.interval, "count": report.count, "late": report.late, "latency_ns": report.latency_ns}
    )
    at, count, late = (
        _column("interval", report.interval),
        _column("count", report.count, least=1),
        _column("late", report.late),
    )
    if (np.diff(at, prepend=-1) <= 0).any():
        raise BadInput("interval", report.interval, "must be numbers of intervals, from 0 on, that rise")
    if (late > count).any():
        wrong = int(np.argmax(late > count))
        raise BadInput(f"late[{wrong}]", int(late[wrong]), f"must be at most count[{wrong}], {count[wrong]}")
    for field in ("measured", "lost", "unsent", "access_ns", "processing_ns", "total_ns", "others_worst_ns"):
        _column(field, [getattr(report, field)])
    return Progress(
        broker=broker,
        round=round_,
        intervals=Intervals(at=at, count=count, late=late, latency_ns=_column("latency_ns", report.latency_ns)),
        latency=Latency(
            count=report.measured,
            access_ns=report.access_ns,
            processing_ns=report.processing_ns,
            total_ns=report.total_ns,
        ),
        others_kept=report.others_kept,
        others_worst_ns=report.others_worst_ns,
        lost=report.lost,
        unsent=report.unsent,
        final=report.final,
    )


def trace(sent: MeasuredTrace, positions: Mapping[str, int], lab_service_time_ns: int = 0) -> Trace:
    """The trace as arrays. ``positions`` is {publisher id: index in the topic's columns}; messages of other publishers
    are left out.

    With ``lab_service_time_ns`` above 0 every service time is that of the laboratory. Else
    ``prediction.replay.measured_service_ns`` finds the service times. Raises BadInput.
    """
    columns = {name: getattr(sent, name) for name in ("publisher", "gap_ns", "access_ns", "processing_ns")}
    _check_equal_lengths(columns)
    publisher, gap_ns, access_ns, processing_ns = (_column(name, values) for name, values in columns.items())
    if len(publisher) and publisher.max() >= len(sent.publishers):
        raise BadInput(
            "publisher", int(publisher.max()), f"must be an index into publishers, of {len(sent.publishers)}"
        )
    if not 0 <= lab_service_time_ns <= MAX_SERVICE_NS:
        raise BadInput("lab_service_time_ns", lab_service_time_ns, f"must be from 0 to {MAX_SERVICE_NS} ns")
    if not 0 <= sent.first_ns <= _MAX_WALL_NS:
        raise BadInput("first_ns", sent.first_ns, f"must be from 0 to {_MAX_WALL_NS}")
    arrival_ns = sent.first_ns + np.cumsum(gap_ns)
    due_ns = arrival_ns + access_ns
    if lab_service_time_ns:
        service_ns = np.full(len(arrival_ns), lab_service_time_ns, dtype=np.int64)
    else:
        service_ns = measured_service_ns(due_ns, due_ns + processing_ns)
    index = np.array([positions.get(name, -1) for name in sent.publishers], dtype=np.int64)
    mine = index[publisher] if len(publisher) else publisher
    known = mine >= 0
    return Trace(publisher=mine[known], arrival_ns=arrival_ns[known], service_ns=service_ns[known])


def _check_equal_lengths(columns: Mapping[str, Sequence[int]]) -> None:
    (first, length), *others = ((name, len(values)) for name, values in columns.items())
    if length > MAX_COLUMN_LENGTH:
        raise BadInput(first, length, f"must have at most {MAX_COLUMN_LENGTH:,} entries")
    for name, other in others:
        if other != length:
            raise BadInput(name, other, f"must have as many entries as {first}, {length}")


def _column(field: str, values: Sequence[int], least: int = 0) -> Ints:
    """``values`` as an array. Raises BadInput unless every entry, and their sum, is in range."""
    wrong = next((at for at, value in enumerate(values) if not least <= value <= _MAX_NS), None)
    if wrong is not None:
        raise BadInput(f"{field}[{wrong}]", values[wrong], f"must be from {least} to {_MAX_NS}")
    if sum(values) > _MAX_NS:
        raise BadInput(field, sum(values), f"must sum to at most {_MAX_NS}")
    return np.array(values, dtype=np.int64)
