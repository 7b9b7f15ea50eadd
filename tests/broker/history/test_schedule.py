"""Which bins of which topics are due, and when that is at once."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.events import RateChanged
from broker.history.bins import EngineBins, EngineHistories
from broker.history.schedule import HistorySchedule, Poll
from srtm.control import RateChange, TopicHistory

BIN_NS = 100_000_000
WALL_NS = 1_790_000_000_000_000_000
FIRST = 1_000  # number of the first bin
STEADY_BINS = 120  # without news


class Engine:
    """A step is a bin: what came in it, what waited when it began. The clock is the engine's."""

    def __init__(self, *topics, seldom=()):
        self.schedule = HistorySchedule()
        self.until = FIRST
        self.offset_ns = WALL_NS
        self.delay_ns, self.rate = 0, 100.0
        self.kept = {}  # {topic: {bin: (arrivals, waiting, delay, rate)}}
        self.watched = set()
        self.asked = []
        self.said = []  # (bins since the first, report)
        self.follow(topics, seldom)

    def follow(self, topics, seldom=()):
        self.schedule.follow(topics, seldom)
        self._watch()

    def step(self, bins=1, **came):
        """``came``: {topic: messages, or (messages, waiting)}; the others got nothing."""
        for topic, one in came.items():
            count, waiting = one if isinstance(one, tuple) else (one, 0)
            for number in range(self.until, self.until + bins):
                self.kept.setdefault(topic, {})[number] = (count, waiting, self.delay_ns, self.rate)
        self.until += bins
        now_ns = self.until * BIN_NS
        if (poll := self.schedule.poll()).topics:
            self._say(self.schedule.due_reports(self.answer(poll), now_ns))
            self._watch()
        if (whole := self.schedule.whole()) is not None:
            self._say(self.schedule.whole_reports(self.answer(whole), now_ns))

    def run(self, bins, **came):
        for _ in range(bins):
            self.step(**came)

    def answer(self, poll: Poll) -> EngineHistories:
        """As the engine answers: topics without messages are left out, bins are kept for 12.8 s."""
        self.asked.append(poll)
        first = max(poll.since, self.until - 128)
        found = []
        for topic in poll.topics:
            kept = self.kept.get(topic, {})
            if not any(number in kept for number in range(first, self.until)):
                continue
            bins = [kept.get(number, (0, 0, 0, self.rate)) for number in range(first, self.until)]
            rates = [(number, rate) for number, (*_, rate) in enumerate(bins, first)]
            found.append(
                EngineBins(
                    topic=topic,
                    version=7,
                    first=first,
                    arrivals=[one[0] for one in bins],
                    waiting=[one[1] for one in bins],
                    unfinished=[0.5 + one[1] if one[0] or one[1] else 0.0 for one in bins],
                    delay_ns=[one[2] for one in bins],
                    supply=rates[:1] + [now for before, now in pairwise(rates) if now[1] != before[1]],
                )
            )
        return EngineHistories(until=self.until, bin_ns=BIN_NS, wall_offset_ns=self.offset_ns, topics=found)

    def rate_changes(self, topic="t", waiting=7):
        """180 messages in the 20 ms that ended with the last bin."""
        self.unsteady(topic)
        since_ns = self.until * BIN_NS - 20_000_000
        moved = RateChanged(
            topic=topic, version=7, since_ns=since_ns, span_ns=20_000_000, arrivals=180, waiting=waiting
        )
        report = self.schedule.rate_changed(moved, self.until * BIN_NS)
        self._say([report] if report is not None else [])

    def unsteady(self, topic="t"):
        if (resting := self.schedule.resting([topic])) is not None:
            self.schedule.move(self.answer(resting), resting.topics)
            self._watch()
        self.schedule.disturb(topic)

    def _say(self, reports):
        self.said += [(self.until - FIRST, report) for report in reports]

    def _watch(self):
        if (change := self.schedule.take_watch_change()) is not None:
            assert self.watched.isdisjoint(change.added)
            assert self.watched.issuperset(change.removed)
            self.watched = self.watched.union(change.added).difference(change.removed)

    @property
    def times(self):
        return [at for at, _ in self.said]


# Topics that move


def test_every_bin_is_reported_once_a_second_without_gaps():
    engine = Engine("t")
    engine.run(40, t=500)
    assert engine.times == [1, 11, 21, 31]
    reports = [report for _, report in engine.said]
    assert [len(report.arrivals) for report in reports[1:]] == [10, 10, 10]
    assert all(now.first_ns == before.end_ns for before, now in pairwise(reports))
    assert reports[0].end_ns == WALL_NS + (FIRST + 1) * BIN_NS
    assert (reports[1].topic, reports[1].share_version, reports[1].change) == ("t", 7, None)
    assert (reports[1].arrivals[0], reports[1].unfinished[0]) == (500, 0.5)


def test_delay_and_the_rate_of_the_share_are_told_where_there_is_something_to_tell():
    engine = Engine("t")
    engine.run(11, t=500)
    engine.delay_ns = 7_000
    engine.run(2, t=500)
    engine.rate = 250.0
    engine.run(5, t=500)
    plain, *delayed = [report for _, report in engine.said[1:]]
    assert (plain.delay_ns, plain.supply) == ([], [(0, 100.0)])
    assert {delay_ns for report in delayed for delay_ns in report.delay_ns} == {7_000}
    rates = [rate for report in delayed for _, rate in report.supply]
    assert (rates[0], rates[-1]) == (100.0, 250.0)


def test_a_report_is_no_longer_than_what_it_says():
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
    engine.rate_changes()
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


def test_a_change_is_not_told_of_a_topic_that_nobody_follows_nor_before_the_clock_is_known():
    engine = Engine("t")
    engine.rate_changes()
    engine.run(3, t=1)
    engine.said.clear()
    engine.rate_changes("u")
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


def test_that_nothing_comes_is_told_each_second_too():
    engine = Engine("t")
    engine.run(41, t=500)
    engine.said.clear()
    engine.run(30)
    assert [sum(report.arrivals) for _, report in engine.said] == [0, 0, 0]
    assert engine.times == [51, 61, 71]


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
    assert all(end == begin for (_, end), (begin, _) in pairwise(ends))


def test_a_broker_that_stood_still_begins_again_with_what_its_engine_still_has():
    engine = Engine("t", "u")
    engine.run(15, t=500, u=500)
    engine.said.clear()
    engine.until += 36_000
    engine.step(t=500)
    engine.run(10, t=500)
    reports = [report for _, report in engine.said if report.topic == "t"]
    assert reports[-1].end_ns == WALL_NS + engine.until * BIN_NS
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
    engine.follow(["u"])
    assert engine.schedule.names == ["u"]
    engine.run(11, u=1)
    assert {report.topic for _, report in engine.said} == {"u"}


def test_a_topic_that_must_tell_all_is_never_steady():
    engine = Engine("t")
    engine.run(1_000)
    assert len(engine.said) == 100
    assert not any(report.steady for _, report in engine.said)
    assert engine.watched == set()


# Steady topics


def steady(**came):
    """A topic that has said so."""
    engine = Engine("t", seldom=["t"])
    engine.run(STEADY_BINS + 1, **came)
    assert [report.steady for _, report in engine.said] == [False] * 12 + [True]
    engine.said.clear()
    engine.asked.clear()
    return engine


@pytest.mark.parametrize("came", [{"t": 500}, {}])
def test_after_twelve_seconds_without_news_it_says_so_and_is_watched_and_left_alone(came):
    engine = steady(**came)
    assert engine.watched == {"t"}
    engine.run(1_000, **came)
    assert (engine.said, engine.asked, engine.schedule.are_moving) == ([], [], False)


def test_that_report_tells_ten_seconds_so_that_an_adaptor_can_begin_with_it():
    engine = Engine("t", seldom=["t"])
    engine.run(STEADY_BINS + 1, t=3)
    *_, (_, report) = engine.said
    assert report.arrivals == [3] * 100
    assert report.end_ns == WALL_NS + engine.until * BIN_NS


def test_what_the_engine_tells_of_a_steady_topic_is_told_with_the_ten_seconds_before_until_it_is_steady_again():
    engine = steady(t=500)
    engine.run(300, t=500)
    engine.unsteady()
    assert engine.watched == set()
    engine.run(STEADY_BINS + 1, t=500)
    (at, first), *_, (_, last) = engine.said
    assert (at, len(first.arrivals), first.steady) == (STEADY_BINS + 302, 101, False)
    assert last.steady
    assert [report.steady for _, report in engine.said].count(True) == 1


def test_a_change_of_a_steady_topic_is_told_at_once_with_the_ten_seconds_before():
    engine = steady(t=500)
    engine.run(50, t=500)
    engine.rate_changes()
    ((_, report),) = engine.said
    assert (report.arrivals, report.change is None) == ([500] * 100, False)
    assert report.end_ns == WALL_NS + engine.until * BIN_NS


def test_what_waits_in_a_topic_that_moves_begins_the_twelve_seconds_anew():
    engine = Engine("t", seldom=["t"])
    for _ in range(5):
        engine.run(100, t=500)
        engine.step(t=(500, 1))
    assert not any(report.steady for _, report in engine.said)


def test_steady_topics_are_renewed_every_five_minutes_and_those_that_move_are_not():
    engine = Engine("t", "u", seldom=["t", "u"])
    renewed = []
    for _ in range(6_200):
        engine.step(t=5, u=(5, 1))
        names = engine.schedule.renewals(engine.until * BIN_NS)
        renewed += [(engine.until - FIRST, names)] if names else []
    assert renewed == [(3_001, ["t"]), (6_001, ["t"])]


def test_renewals_that_were_lost_are_due_again_soon():
    engine = steady(t=5)
    now_ns = engine.until * BIN_NS
    assert engine.schedule.renewals(now_ns) == []
    assert engine.schedule.renewals(now_ns + 300 * 10**9) == ["t"]
    engine.schedule.renewals_lost(now_ns + 300 * 10**9)
    assert engine.schedule.renewals(now_ns + 304 * 10**9) == []
    assert engine.schedule.renewals(now_ns + 305 * 10**9) == ["t"]


def test_a_word_of_steady_traffic_that_was_lost_is_said_again_as_things_are_now():
    engine = steady(t=500)
    engine.run(200, t=490)
    engine.schedule.reports_lost(["t", "nowhere"])
    engine.step(t=490)
    ((_, report),) = engine.said
    assert (report.steady, report.arrivals) == (True, [490] * 100)
    engine.run(100, t=490)
    assert len(engine.said) == 1


def test_a_topic_that_must_tell_all_from_now_on_moves_again():
    engine = steady(t=500)
    engine.follow(["t"])
    assert engine.watched == set()
    engine.run(200, t=500)
    assert len(engine.said) == 20


def test_a_topic_that_is_followed_after_a_rest_has_its_twelve_seconds():
    engine = steady(t=500)
    engine.run(80, t=500)
    engine.follow(["t", "u"], ["t", "u"])
    engine.run(STEADY_BINS, t=500)
    assert not any(report.steady for _, report in engine.said)
    assert {report.topic for _, report in engine.said} == {"u"}
