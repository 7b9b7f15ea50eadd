"""Which bins of which topics are due, and when that is at once."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.events import RateChanged
from broker.history.bins import EngineBins, EngineHistories
from broker.history.schedule import HistorySchedule
from srtm.control import RateChange, TopicHistory

BIN_NS = 100_000_000
WALL_NS = 1_790_000_000_000_000_000
FIRST = 1_000  # number of the first bin


class Engine:
    """A step is a bin: what came in it, what waited when it began. The clock is the engine's."""

    def __init__(self, *topics):
        self.schedule = HistorySchedule()
        self.schedule.follow(topics)
        self.until = FIRST
        self.offset_ns = WALL_NS
        self.delay_ns, self.rate = 0, 100.0
        self.said = []  # (bins since the first, report)

    def step(self, bins=1, **came):
        """``came``: {topic: messages, or (messages, waiting)}; the others got nothing."""
        since, self.until = self.until, self.until + bins
        counts = {topic: one if isinstance(one, tuple) else (one, 0) for topic, one in came.items()}
        topics = [
            EngineBins(
                topic=topic,
                version=7,
                first=since,
                arrivals=[count] * bins,
                waiting=[waiting] * bins,
                unfinished=[0.5 + waiting] * bins,
                delay_ns=[self.delay_ns] * bins,
                supply=[(since, self.rate)],
            )
            for topic, (count, waiting) in counts.items()
        ]
        told = EngineHistories(until=self.until, bin_ns=BIN_NS, wall_offset_ns=self.offset_ns, topics=topics)
        due = self.schedule.due_reports(told, self.until * BIN_NS)
        self.said += [(self.until - FIRST, report) for report in due]

    def run(self, bins, **came):
        for _ in range(bins):
            self.step(**came)

    def move(self, topic="t", waiting=7):
        """Its rate has changed: 180 messages in the 20 ms that ended with the last bin."""
        since_ns = self.until * BIN_NS - 20_000_000
        moved = RateChanged(
            topic=topic, version=7, since_ns=since_ns, span_ns=20_000_000, arrivals=180, waiting=waiting
        )
        report = self.schedule.rate_changed(moved, self.until * BIN_NS)
        if report is not None:
            self.said.append((self.until - FIRST, report))

    @property
    def times(self):
        return [at for at, _ in self.said]


def test_every_bin_is_reported_once_a_second_without_gaps():
    engine = Engine("t")
    engine.run(40, t=500)
    assert engine.times == [1, 11, 21, 31]
    reports = [report for _, report in engine.said]
    assert [len(report.arrivals) for report in reports] == [1, 10, 10, 10]
    assert reports[0].first_ns == WALL_NS + FIRST * BIN_NS
    assert all(now.first_ns == before.end_ns for before, now in pairwise(reports))
    assert (reports[1].topic, reports[1].share_version, reports[1].change) == ("t", 7, None)
    assert (reports[1].arrivals[0], reports[1].unfinished[0]) == (500, 0.5)


def test_delay_and_the_rate_of_the_share_are_told_where_there_is_something_to_tell():
    engine = Engine("t")
    engine.run(1, t=500)
    engine.run(10, t=500)
    engine.delay_ns = 7_000
    engine.run(5, t=500)
    engine.rate = 250.0
    engine.run(5, t=500)
    plain, *delayed = [report for _, report in engine.said[1:]]
    assert (plain.delay_ns, plain.supply) == ([], [(0, 100.0)])
    assert {delay_ns for report in delayed for delay_ns in report.delay_ns} == {7_000}
    assert [report.supply for report in delayed] == [[(0, 100.0)], [(0, 100.0), (2, 250.0)], [(0, 250.0)]]


def test_a_report_of_steady_traffic_is_no_longer_than_what_it_says():
    engine = Engine("t")
    engine.run(11, t=500)
    *_, (_, report) = engine.said
    told = msgspec.json.decode(msgspec.json.encode(report))
    assert told.keys().isdisjoint({"delay_ns", "change", "steady"})
    assert told["supply"] == [[0, 100.0]]
    assert msgspec.json.decode(msgspec.json.encode(report), type=TopicHistory) == report


def test_a_change_is_reported_at_once_with_the_bins_so_far_and_then_four_times_a_second_for_some_seconds():
    engine = Engine("t")
    engine.run(45, t=500)
    engine.said.clear()
    engine.move()
    engine.run(60, t=900)
    at, told = engine.said[0]
    since_ns = WALL_NS + (FIRST + 45) * BIN_NS - 20_000_000
    assert told.change == RateChange(since_ns=since_ns, span_ns=20_000_000, arrivals=180, waiting=7)
    assert (at, told.arrivals, told.end_ns) == (45, [500] * 4, WALL_NS + (FIRST + 45) * BIN_NS)
    assert all(report.change is None for _, report in engine.said[1:])
    assert engine.said[1][1].first_ns == told.end_ns
    close = [at for at in engine.times if at <= 45 + 30]
    assert max(after - before for before, after in pairwise(close)) == 3  # bins: 0.3 s
    assert engine.times[-1] - engine.times[-2] == 10


def test_a_change_on_a_topic_that_slept_is_told_without_bins_and_those_that_follow_are_told_once():
    engine = Engine("t", "u")
    engine.run(30, u=100)
    engine.said.clear()
    engine.move()
    engine.run(10, t=900, u=100)
    reports = [report for _, report in engine.said if report.topic == "t"]
    assert (reports[0].arrivals, reports[0].end_ns) == ([], WALL_NS + (FIRST + 30) * BIN_NS)
    assert reports[0].share_version == 7  # though no bin said so yet
    assert sum(sum(report.arrivals) for report in reports) == 9 * 900
    assert all(now.first_ns == before.end_ns for before, now in pairwise(reports))


def test_a_change_is_not_told_of_a_topic_that_nobody_follows_nor_before_the_clock_is_known():
    engine = Engine("t")
    engine.move()
    engine.run(3, t=1)
    engine.said.clear()
    engine.move("u")
    assert engine.said == []


def test_while_messages_wait_at_the_beginning_of_every_bin_it_reports_often():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.said.clear()
    engine.run(10, t=(500, 3))
    assert len(engine.said) == 3
    assert engine.said[0][1].waiting[-1] == 3


def test_after_one_burst_that_waits_it_reports_often_for_a_second():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.said.clear()
    engine.run(1, t=(500, 3))
    engine.run(29, t=500)
    assert engine.times == [44, 47, 50, 60, 70]


def test_a_topic_to_which_nothing_was_is_left_out_and_its_quiet_bins_count_for_the_next():
    engine = Engine("t", "u")
    engine.run(21, u=100)
    assert [report.topic for _, report in engine.said if any(report.arrivals)] == ["u"] * 3
    engine.said.clear()
    engine.run(5, t=100, u=100)
    (first, *_) = [report for _, report in engine.said if report.topic == "t"]
    assert first.arrivals == [100]


def test_that_nothing_comes_is_told_once():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.said.clear()
    engine.run(100)
    assert [(at, any(report.arrivals)) for at, report in engine.said] == [(51, False)]
    engine.said.clear()
    engine.run(1, t=500)
    engine.run(15)
    assert [sum(report.arrivals) for _, report in engine.said] == [500, 0]


def test_a_topic_that_begins_to_be_followed_says_that_nothing_comes():
    engine = Engine("t")
    engine.run(50)
    ((at, report),) = engine.said
    assert (at, report.arrivals, report.end_ns) == (2, [0], WALL_NS + (FIRST + 2) * BIN_NS)


def test_the_end_of_traffic_is_told_until_it_is_taken():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.run(20)
    for _ in range(3):
        engine.said.clear()
        engine.schedule.reports_lost(["t"])
        engine.run(20)
        assert [any(report.arrivals) for _, report in engine.said] == [False]


def test_a_change_to_nothing_is_followed_by_a_report_of_nothing():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.said.clear()
    engine.move()
    engine.run(50)
    assert [report.change is None for _, report in engine.said] == [False, True]
    assert not any(engine.said[-1][1].arrivals)


def test_bins_that_came_late_are_one_report():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.said.clear()
    engine.step(bins=30, t=900)
    (report,) = [report for _, report in engine.said]
    assert len(report.arrivals) == 30


@given(steps=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), max_size=60))
def test_every_message_is_told_once_whatever_the_pauses(steps):
    engine = Engine("t")
    for bins, count in steps:
        engine.step(bins, **({"t": count} if count else {}))
    engine.run(11)
    assert sum(sum(report.arrivals) for _, report in engine.said) == sum(bins * count for bins, count in steps)
    ends = [(report.first_ns, report.end_ns) for _, report in engine.said]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))


def test_a_broker_that_stood_still_begins_again_with_what_its_engine_still_has():
    engine = Engine("t", "u")
    engine.run(15, t=500, u=500)
    engine.said.clear()
    engine.until += 36_000
    engine.step(t=500)
    engine.run(10, t=500)
    reports = [report for _, report in engine.said if report.topic == "t"]
    assert reports[0].first_ns == WALL_NS + (FIRST + 15 + 36_000) * BIN_NS
    assert max(len(report.arrivals) for _, report in engine.said) <= 128


def test_bins_follow_one_another_to_the_nanosecond_until_the_wall_clock_is_set():
    engine = Engine("t")
    for _ in range(4):
        engine.offset_ns += 7  # as it is read
        engine.run(10, t=500)
    reports = [report for _, report in engine.said]
    assert all(now.first_ns == before.end_ns for before, now in pairwise(reports))
    engine.offset_ns += 3_600_000_000_000
    engine.run(10, t=500)
    assert engine.said[-1][1].first_ns - reports[-1].end_ns >= 3_600_000_000_000


@pytest.mark.parametrize("gone", [[], ["u"]])
def test_what_is_no_longer_followed_is_forgotten(gone):
    engine = Engine("t", *gone)
    engine.schedule.follow(["u"])
    assert engine.schedule.names == ["u"]
    engine.run(11, u=1)
    assert {report.topic for _, report in engine.said} == {"u"}
