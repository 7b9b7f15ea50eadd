"""Measurements that the distributor asks brokers for. Every ``SyncAnswer`` names those that are to run; reports are
requests of their own."""

from __future__ import annotations

from srtm.control.message import Control


class Promise(Control, frozen=True):
    """The promise to a topic that is on the broker already."""

    topic: str
    percentile: float
    target_ns: int


class MeasurementRequest(Control, frozen=True):
    """A measurement that a broker is to run. Made by ``distributor.measuring.messages``, read by
    ``broker.sync.measurements``. A measurement that is no longer named has ended.

    It begins ``after_ns`` after share version ``share_version`` is in force, and not while it is ``held``. It reports
    every ``report_ns``, for the last time after ``at_most_ns`` of measuring. The promises to ``others`` are watched
    from the start, and reported every second until it begins.
    """

    id: str
    topic: str
    percentile: float
    target_ns: int  # also the length of an interval
    share_version: int
    after_ns: int = 0  # time for buckets to fill
    at_least_ns: int = 0  # of measuring before the first report, unless a promise is broken
    at_most_ns: int = 0
    report_ns: int = 200_000_000
    held: bool = False  # its publishers are in transit
    others: list[Promise] = []  # watched meanwhile, second by second
    trace_wanted: bool = False  # stop, and send the trace


class MeasuredTrace(Control, frozen=True):
    """The messages of one measurement that were sent, in order of decision.

    Columns of equal length. Times are differences, which are short in JSON.
    """

    publishers: list[str] = []  # ids
    publisher: list[int] = []  # index into ``publishers``
    first_ns: int = 0  # arrival of the first, wall clock: traces of several brokers are joined
    gap_ns: list[int] = []  # since the arrival of the message before, 0 or more; of the first: 0
    access_ns: list[int] = []  # due less arrival
    processing_ns: list[int] = []  # sent less due, without the wait for a subscriber


class MeasurementReport(Control, frozen=True):
    """What a measurement counted. Made by ``broker.sync.measurement_report``, read by
    ``distributor.measuring.messages`` (``POST /v1/brokers/NAME/measurements/ID``).

    The columns are of intervals since the report before; intervals without a message are left out.
    """

    incarnation: str
    sequence: int  # 1, 2, ...: a report that arrives twice counts once
    interval: list[int] = []  # numbers of intervals, from 0 on; reported once all their messages were sent
    count: list[int] = []  # messages that arrived in it
    late: list[int] = []  # of them, over the target: access, processing and network together
    latency_ns: list[int] = []  # sum over them
    measured: int = 0  # messages since the measurement began; below, the percentile of each delay
    lost: int = 0  # messages that the trace dropped before they were sent
    unsent: int = 0  # messages that no subscriber took within 2 s: not measured
    access_ns: int = 0
    processing_ns: int = 0
    total_ns: int = 0
    others_kept: bool = True  # every promise to another topic was kept in the last second
    others_worst_ns: int = 0  # the largest of their percentiles in it
    final: bool = False  # the measurement is over
    lab_service_time_ns: int = 0  # service time of every message in the laboratory; 0: not in the laboratory
    trace: MeasuredTrace | None = None  # if it was wanted; then this report is the last


class MeasurementAnswer(Control, frozen=True):
    """The answer to a report: the broker does not have to wait for the next sync. Made by the distributor."""

    go_on: bool  # false: forget the measurement
    trace_wanted: bool = False
