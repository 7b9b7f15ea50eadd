"""What is known of a broker's topics after each of its requests, in whatever order they come."""

import msgspec
import pytest

from distributor.sync.report_checks import merge_reports
from srtm.control import ChannelQueue, SyncRequest, TopicReport

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)


def report(topic, received=0):
    return TopicReport(topic=topic, share_version=1, received=received)


def whole(number, *reports, **changes):
    return msgspec.structs.replace(ABOUT, number=number, topics=list(reports), **changes)


def differences(number, since, *reports, gone=(), **changes):
    return whole(number, *reports, reports_since=since, gone=list(gone), **changes)


@pytest.fixture
def known():
    return merge_reports(None, whole(1, report("a"), report("b")))


def test_all_that_is_told_first_is_a_change(known):
    assert known.topics == {"a": report("a"), "b": report("b")}
    assert known.changed == ["a", "b"]


def test_the_same_again_is_known_and_no_change(known):
    again = merge_reports(known, whole(2, report("a"), report("b")))
    assert (again.number, again.topics, again.changed) == (2, known.topics, [])


def test_differences_change_what_they_name_and_nothing_else(known):
    now = merge_reports(known, differences(2, 1, report("a", received=3), report("c"), gone=["b"]))
    assert now.topics == {"a": report("a", received=3), "c": report("c")}
    assert now.changed == ["a", "b", "c"]


def test_differences_from_an_answered_request_are_right_also_where_a_later_one_was_heard(known):
    later = merge_reports(known, differences(2, 1, report("a", received=3)))
    now = merge_reports(later, differences(3, 1, report("a"), report("b", received=1)))
    assert now.topics == {"a": report("a"), "b": report("b", received=1)}


def test_differences_from_what_is_not_known_here_are_not_taken(known):
    assert merge_reports(None, differences(2, 1, report("a"))) is None
    assert merge_reports(known, differences(4, 3, report("a"))) is None
    assert merge_reports(known, differences(2, 1, report("a"), incarnation="2")) is None


def test_what_comes_late_or_twice_changes_nothing(known):
    now = merge_reports(known, differences(3, 1, report("a", received=3)))
    for late in (differences(3, 1, report("a", received=3)), differences(2, 1, report("a")), whole(1)):
        assert merge_reports(now, late) is now


def test_another_incarnation_begins_anew(known):
    now = merge_reports(known, whole(1, report("b"), incarnation="2"))
    assert (now.topics, now.changed) == ({"b": report("b")}, ["a"])


def test_a_broker_that_does_not_count_its_requests_tells_everything_each_time():
    first = merge_reports(None, whole(0, report("a")))
    assert merge_reports(first, whole(0, report("b"))).topics == {"b": report("b")}


def test_a_report_that_cannot_be_is_counted_and_takes_the_one_before_with_it(known):
    now = merge_reports(known, differences(2, 1, report("a", received=-1)))
    assert (now.topics, now.ignored, now.changed) == ({"b": report("b")}, 1, ["a"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": -1},
        {"network_ms": float("nan")},
        {"consumed": ["c"], "consumers": [-1]},
        {"queues": [ChannelQueue(channel="c", in_flight=-1)]},
        {"queues": [ChannelQueue(channel="no name")]},
        {"mqtt_refused": [0, -1, 0]},
        {"mqtt_dropped": [1]},
    ],
)
def test_a_report_with_a_figure_that_no_broker_can_have_counted_is_ignored(known, wrong):
    now = merge_reports(known, whole(2, msgspec.structs.replace(report("a", received=3), **wrong), report("b")))
    assert now.ignored == 1
    assert "a" not in now.topics
