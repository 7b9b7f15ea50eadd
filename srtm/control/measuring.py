"""Measurements that the distributor asks of brokers: named in every ``SyncAnswer`` for as long as they shall run,
reported by calls of their own."""

from __future__ import annotations

from srtm.control.message import Control


class Promise(Control, frozen=True):
    """What a topic that is already on a broker was promised."""

    topic: str
    percentile: float
    target_ns: int


class MeasurementRequest(Control, frozen=True):
    """Made by ``distributor.sync.measurement_messages``, read by the broker: a measurement that it shall be running.
    One that is no longer named has ended.

    It begins ``after_ns`` after the broker has learned of it, with share version ``share_version`` in force, and not
    while it is ``held``; it reports every ``report_ns``, at the latest after ``at_most_ns`` of measuring for the last
    time. The promises to ``others`` are watched from the first, and reported every second until it begins.
    """

    id: str
    topic: str
    percentile: float
    target_ns: int  # also the length of an interval
    share_version: int
    after_ns: int = 0  # for buckets to fill
    at_least_ns: int = 0  # of measuring, before the first report (unless a promise is broken)
    at_most_ns: int = 0
    report_ns: int = 200_000_000
    held: bool = False  # its publishers are still on their way
    others: list[Promise] = []  # to be watched meanwhile, second by second
    trace_wanted: bool = False  # enough: stop, and send what arrived


class MeasuredTrace(Control, frozen=True):
    """Messages of one measurement in order of decision, those that were sent. Columns of equal length, as differences,
    because those are short in JSON."""

    publishers: list[str] = []  # ids
    publisher: list[int] = []  # index into ``publishers``
    first_ns: int = 0  # arrival of the first, wall clock: traces of several brokers are joined
    gap_ns: list[int] = []  # arrival less that of the message before, never negative; of the first: 0
    access_ns: list[int] = []  # due less arrival
    processing_ns: list[int] = []  # sent less due, without the wait for a subscriber


class MeasurementReport(Control, frozen=True):
    """Made by the broker, read by ``distributor.sync.measurement_messages`` at ``POST
    /v1/brokers/NAME/measurements/ID``. The columns are of intervals since the report before, those without a message
    left out."""

    incarnation: str
    sequence: int  # 1, 2, ...: one that comes twice counts once
    interval: list[int] = []  # numbers of intervals, 0 when the measurement began; told when all of it was sent
    count: list[int] = []  # messages that arrived in it
    late: list[int] = []  # of them over the target: access, processing and network together
    latency_ns: list[int] = []  # sum over them
    measured: int = 0  # messages since the measurement began, and their percentile of each delay
    lost: int = 0  # of those that came since, what the trace dropped before it was sent
    unsent: int = 0  # and what no subscriber took for 2 s: not measured
    access_ns: int = 0
    processing_ns: int = 0
    total_ns: int = 0
    others_kept: bool = True  # every promise to another topic, in the last second
    others_worst_ns: int = 0  # the largest of their percentiles in it
    final: bool = False  # it has measured for as long as it was to
    lab_service_time_ns: int = 0  # of a broker in the laboratory: what every message takes
    trace: MeasuredTrace | None = None  # if it was wanted; the last word then


class MeasurementAnswer(Control, frozen=True):
    """The answer to a report, so that nobody waits for the next sync. Made by the distributor, read by the broker."""

    go_on: bool  # false: forget the measurement
    trace_wanted: bool = False
