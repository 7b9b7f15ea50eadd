"""Measurements over the wire: a report becomes what the fitting takes, or is refused by the name of what is wrong."""

import msgspec
import numpy as np
import pytest

from distributor.fitting.events import Measure, Task
from distributor.measuring.messages import progress, request, trace
from distributor.model.columns import ALONE
from distributor.placement.allocation import Demand
from srtm.control import MeasuredTrace, MeasurementReport, MeasurementRequest, Promise
from srtm.errors import BadInput

MS = 1_000_000  # ns
NOW_NS = 1_790_000_000_000_000_000  # of the wall clock


def report(**fields):
    return MeasurementReport(incarnation="i-1", sequence=1, **fields)


def sent(**fields):
    columns = {
        "publishers": ["p0", "p1"],
        "publisher": [0, 1, 0],
        "first_ns": NOW_NS,
        "gap_ns": [0, 0, 5],
        "access_ns": [0, 10, 10],
        "processing_ns": [3, 3, 4],
    }
    return MeasuredTrace(**{**columns, **fields})


def test_what_was_dropped_or_taken_by_nobody_is_told_as_it_is():
    made = progress("b", 1, report(lost=7, unsent=9))
    assert (made.lost, made.unsent) == (7, 9)
    for field in ("lost", "unsent"):
        with pytest.raises(BadInput, match=field):
            progress("b", 1, report(**{field: -1}))


def test_a_request_names_what_to_measure_and_whom_to_watch():
    demand = Demand(rates=np.ones(1), groups=np.full(1, ALONE), rate=2.0, burst=1.0)
    action = Measure(broker="b0", round=3, after_ns=5, at_least_ns=6, at_most_ns=7)
    others = [Promise(topic="old", percentile=99.9, target_ns=2 * MS)]
    made = request(action, Task(demand=demand, percentile=99, target_ns=MS), "new:7:", "new", 12, others)
    assert made.id == "new:7:3"
    assert (made.topic, made.percentile, made.target_ns, made.share_version) == ("new", 99, MS, 12)
    assert (made.after_ns, made.at_least_ns, made.at_most_ns, made.others) == (5, 6, 7, others)
    assert msgspec.json.decode(msgspec.json.encode(made), type=MeasurementRequest) == made


def test_a_report_becomes_progress():
    found = progress(
        "b0",
        3,
        report(
            interval=[3, 9],
            count=[5, 2],
            late=[0, 2],
            latency_ns=[9, 8],
            measured=7,
            access_ns=1,
            processing_ns=2,
            total_ns=3,
        ),
    )
    assert (found.broker, found.round, found.final, found.others_kept) == ("b0", 3, False, True)
    assert [column.tolist() for column in (found.intervals.count, found.intervals.late)] == [[5, 2], [0, 2]]
    assert found.intervals.latency_ns.tolist() == [9, 8]
    assert (found.latency.count, found.latency.access_ns, found.latency.processing_ns) == (7, 1, 2)


def test_a_report_without_a_message_is_progress_too():
    assert len(progress("b0", 1, report(others_kept=False)).intervals) == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"interval": [0, 1], "count": [1, 2], "late": [0], "latency_ns": [1, 2]}, "late"),
        ({"interval": [0], "count": [1], "late": [0], "latency_ns": []}, "latency_ns"),
        ({"interval": [0], "count": [0], "late": [0], "latency_ns": [0]}, r"count\[0\]"),
        ({"interval": [0, 1], "count": [3, 3], "late": [1, 4], "latency_ns": [1, 1]}, r"late\[1\]"),
        ({"interval": [0], "count": [3], "late": [-1], "latency_ns": [1]}, r"late\[0\]"),
        ({"interval": [0], "count": [3], "late": [1], "latency_ns": [1 << 62]}, r"latency_ns\[0\]"),
        ({"interval": [0, 1], "count": [1 << 60, 1], "late": [0, 0], "latency_ns": [0, 0]}, "count"),
        ({"interval": [1, 1], "count": [1, 1], "late": [0, 0], "latency_ns": [0, 0]}, "interval"),
        ({"interval": [-1], "count": [1], "late": [0], "latency_ns": [0]}, "interval"),
        ({"interval": [1 << 70], "count": [1], "late": [0], "latency_ns": [0]}, "interval"),
        ({"total_ns": -1}, "total_ns"),
        ({"others_worst_ns": 1 << 63}, "others_worst_ns"),
    ],
)
def test_a_report_that_cannot_be_is_refused_by_field(fields, named):
    with pytest.raises(BadInput, match=named):
        progress("b0", 1, report(**fields))


def test_a_trace_is_put_together_from_its_differences():
    found = trace(sent(), {"p0": 7, "p1": 4}, lab_service_time_ns=18_000)
    assert found.publisher.tolist() == [7, 4, 7]
    assert found.arrival_ns.tolist() == [NOW_NS, NOW_NS, NOW_NS + 5]
    assert found.service_ns.tolist() == [18_000] * 3


def test_without_a_laboratory_service_times_are_what_one_server_needed():
    # Due 0, 10 and 15 ns after the first arrival; sent at 3, 13 and 19.
    assert trace(sent(), {"p0": 0, "p1": 1}).service_ns.tolist() == [3, 3, 4]


@pytest.mark.parametrize("lab_service_time_ns", [0, 4])
def test_a_queue_from_before_is_not_what_a_message_takes(lab_service_time_ns):
    # The server is free 1,000 ns after the first arrival, and takes 4 ns each.
    waited = sent(access_ns=[0, 0, 0], processing_ns=[1_004, 1_008, 1_007])
    found = trace(waited, {"p0": 0, "p1": 1}, lab_service_time_ns)
    assert found.service_ns.tolist() == [4, 4, 4]


def test_messages_of_publishers_that_the_topic_does_not_name_are_left_out_of_a_trace():
    assert trace(sent(), {"p1": 2}).publisher.tolist() == [2]


def test_an_empty_trace_is_a_trace():
    assert len(trace(MeasuredTrace(), {"p0": 0})) == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"gap_ns": [0, 0]}, "gap_ns"),
        ({"publisher": [0, 2, 0]}, "publisher"),
        ({"publisher": [0, -1, 0]}, r"publisher\[1\]"),
        ({"processing_ns": [3, -3, 4]}, r"processing_ns\[1\]"),
        ({"first_ns": -1}, "first_ns"),
        ({"first_ns": 1 << 63}, "first_ns"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_by_field(fields, named):
    with pytest.raises(BadInput, match=named):
        trace(sent(**fields), {"p0": 0, "p1": 1})


@pytest.mark.parametrize("service_ns", [-1, 10**10 + 1, 10**400])
def test_a_service_time_that_cannot_be_is_refused(service_ns):
    with pytest.raises(BadInput, match="lab_service_time_ns"):
        trace(sent(), {"p0": 7, "p1": 4}, lab_service_time_ns=service_ns)
