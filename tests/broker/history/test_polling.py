"""How seldom the engine is asked for topics whose traffic is steady, and that nothing is lost by it."""

from __future__ import annotations

from collections import Counter

from broker.events import RateChanged
from broker.history.bins import EngineBins, EngineHistories
from broker.history.polling import PERIOD_NS, REST_NS, Pace, Poll, Polling, WatchChange
from broker.history.schedule import HistorySchedule
from srtm.control import TopicHistory

BIN_NS = 100_000_000
WATCHED_NS = 1_000_000_000  # so long after a poll the engine looks for changes
FIRST = 10_000
SETTLED = 250  # bins after which steady traffic is known to be so


class Engine:
    """Keeps the last 128 bins, as the real one; a tick is a bin."""

    def __init__(self, *topics: str, seldom: bool = True) -> None:
        self.schedule = HistorySchedule()
        self.schedule.follow(topics, topics if seldom else ())
        self.until = FIRST
        self.came: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic in topics}
        self.said: list[TopicHistory] = []
        self.asked: list[tuple[int, Poll]] = []  # (ns, poll)
        self.told: Counter[str] = Counter()  # bins, by topic
        self.watched: list[str] = []
        self.unwatched_ns = 0  # in which changes were not looked for in some topic, after the first poll
        self._next_ns = 0

    @property
    def now_ns(self) -> int:
        return self.until * BIN_NS

    def answer(self, poll: Poll) -> EngineHistories:
        self.asked.append((self.now_ns, poll))
        first = max(poll.since, self.until - 128)
        topics = []
        for topic in poll.topics:
            bins = [self.came[topic].get(number, (0, 0)) for number in range(first, self.until)]
            if any(arrivals or waiting for arrivals, waiting in bins):
                columns = {"arrivals": [one[0] for one in bins], "waiting": [one[1] for one in bins]}
                nothing = {"unfinished": [0.0] * len(bins), "delay_ns": [0] * len(bins)}
                supply = [(first, 1_000.0)]
                topics.append(EngineBins(topic=topic, version=1, first=first, supply=supply, **columns, **nothing))
                self.told[topic] += len(bins)
        return EngineHistories(until=self.until, bin_ns=BIN_NS, wall_offset_ns=0, topics=topics)

    def run(self, bins: int, waiting: int = 0, **came: int) -> None:
        for _ in range(bins):
            for topic, count in came.items():
                self.came[topic][self.until] = (count, waiting)
            self.until += 1
            if self.now_ns >= self._next_ns:
                for poll in self.schedule.polling.polls(self.now_ns):
                    self.said += self.schedule.due_reports(self.answer(poll), self.now_ns, poll)
                watched = self.schedule.polling.take_watch_change()
                if watched is not None:
                    self.watched = [one for one in self.watched if one not in watched.removed] + watched.added
                self._next_ns = self.now_ns + self.schedule.polling.period_ns
            for topic in set(self.schedule.names).difference(self.watched):
                if self.now_ns > max(self.questions(topic), default=self.now_ns) + WATCHED_NS:
                    self.unwatched_ns += BIN_NS

    def move(self, topic: str) -> TopicHistory:
        for poll in self.schedule.polling.catch_up([topic]):
            self.schedule.add(self.answer(poll), poll)
        since_ns = self.now_ns - 20_000_000
        moved = RateChanged(topic=topic, version=7, since_ns=since_ns, span_ns=20_000_000, arrivals=9, waiting=0)
        self._next_ns = min(self._next_ns, self.now_ns + BIN_NS)
        told = self.schedule.rate_changed(moved, self.now_ns)
        assert told is not None
        self.said.append(told)
        return told

    def untell(self, topic: str) -> None:
        """Its report was lost."""
        self.schedule.reports_lost([topic])
        self._next_ns = min(self._next_ns, self.now_ns + BIN_NS)

    def disturb(self, topic: str) -> None:
        """It does not rest, says the engine."""
        for poll in self.schedule.polling.catch_up([topic]):
            self.schedule.add(self.answer(poll), poll)
        self.schedule.unsteady(topic)
        self._next_ns = min(self._next_ns, self.now_ns + BIN_NS)

    def questions(self, topic: str) -> list[int]:
        """When it was asked for."""
        return [at_ns for at_ns, poll in self.asked if topic in poll.topics]


def settled(**came: int) -> Engine:
    engine = Engine(*came)
    engine.run(SETTLED, **came)
    assert {one.topic for one in engine.said if one.steady} == set(came)
    engine.said.clear()
    engine.asked.clear()
    engine.told.clear()
    return engine


def test_in_little_traffic_that_is_steady_changes_are_looked_for_all_the_time_and_it_is_not_asked_for() -> None:
    engine = settled(t=1)
    engine.run(600, t=1)
    assert engine.questions("t") == []
    assert engine.watched == ["t"]
    assert engine.unwatched_ns == 0


def test_what_is_not_watched_any_more_is_asked_for() -> None:
    engine = settled(t=1, u=1)
    engine.move("t")
    engine.run(50, t=1, u=1)
    assert engine.watched == ["u"]
    assert engine.unwatched_ns == 0
    engine.schedule.follow([])
    assert engine.schedule.polling.take_watch_change() == WatchChange([], ["u"])
    assert engine.schedule.polling.take_watch_change() is None


def test_where_all_topics_rest_there_is_hardly_anything_to_ask_until_one_does_not() -> None:
    engine = settled(t=1, u=1)
    assert engine.schedule.polling.period_ns == REST_NS
    engine.disturb("u")
    assert engine.schedule.polling.period_ns == PERIOD_NS


def test_a_topic_that_is_watched_no_longer_and_then_again_is_news_of_which_nothing_is_lost() -> None:
    polling = Polling()
    polling.place("t", Pace.WATCHED)
    polling.place("u", Pace.WATCHED)
    assert polling.take_watch_change() == WatchChange(["t", "u"], [])
    polling.place("t", Pace.OFTEN)
    polling.place("v", Pace.WATCHED)
    assert polling.take_watch_change() == WatchChange(["v"], ["t"])
    polling.place("t", Pace.WATCHED)
    assert polling.take_watch_change() == WatchChange(["t"], [])


def test_how_rare_messages_are_is_told_from_ten_seconds_and_never_again_while_it_is_so() -> None:
    engine = Engine("t")
    engine.run(SETTLED, t=1)
    assert [one.arrivals for one in engine.said if one.steady] == [[1] * 100]
    engine.said.clear()
    engine.told.clear()
    engine.run(2 * 3000, t=1)
    assert engine.said == []
    assert engine.told["t"] == 0


def test_much_traffic_is_asked_for_ten_times_a_second_however_steady_it_is() -> None:
    engine = settled(t=2)
    engine.run(100, t=2)
    assert len(engine.questions("t")) == 100


def test_one_topic_in_motion_leaves_the_others_at_rest() -> None:
    engine = settled(t=1, u=1)
    engine.move("u")
    engine.asked.clear()
    engine.run(50, t=1, u=1)
    assert engine.questions("t") == []
    assert len(engine.questions("u")) == 50


def test_a_change_is_told_with_the_bins_of_the_last_second_and_what_follows_joins_on() -> None:
    engine = settled(t=1)
    engine.run(42, t=1)
    engine.run(3, t=8)
    change = engine.move("t")
    assert change.arrivals[-10:] == [1] * 7 + [8] * 3
    assert change.first_ns + len(change.arrivals) * BIN_NS == engine.now_ns
    engine.run(40, t=9)
    later = engine.said[1:]
    assert later[0].first_ns == engine.now_ns - 40 * BIN_NS
    arrivals = [count for one in later for count in one.arrivals]
    assert arrivals == [9] * len(arrivals)
    assert len(arrivals) > 30


def test_the_end_of_little_traffic_is_told_with_bins_in_which_nothing_was() -> None:
    engine = settled(t=1)
    engine.run(13, t=0)
    assert engine.move("t").arrivals[-10:] == [0] * 10


def test_the_first_message_of_a_topic_is_told_within_half_a_second_in_its_bin() -> None:
    engine = Engine("t")
    engine.run(200)
    engine.said.clear()
    came_ns = engine.now_ns
    engine.run(1, t=1)
    engine.run(5)
    [first] = engine.said
    assert sum(first.arrivals) == 1
    assert first.first_ns + first.arrivals.index(1) * BIN_NS == came_ns


def test_steady_traffic_of_which_the_report_was_lost_is_told_again_within_a_second_with_bins_that_were() -> None:
    engine = settled(t=1)
    engine.run(37, t=1)
    assert engine.said == []
    engine.untell("t")
    engine.run(10, t=1)
    assert [(one.steady, set(one.arrivals)) for one in engine.said] == [(True, {1})]


def test_a_queue_that_stands_at_steady_traffic_is_found_and_followed_closely() -> None:
    engine = settled(t=1)
    engine.run(5, waiting=3, t=1)
    engine.disturb("t")
    engine.run(5, waiting=3, t=1)
    assert engine.said
    assert not any(one.steady for one in engine.said)
    engine.asked.clear()
    engine.run(10, waiting=3, t=1)
    assert len(engine.questions("t")) == 10


def test_traffic_that_has_drifted_is_told_every_second_until_it_is_steady_again() -> None:
    engine = settled(t=1)
    engine.run(3000, t=2)
    engine.disturb("t")
    engine.run(110, t=2)
    assert 10 <= len(engine.said) <= 12
    assert not any(one.steady for one in engine.said)
    assert all(set(one.arrivals) == {2} for one in engine.said)
    engine.run(30, t=2)
    assert engine.said[-1].steady


def test_what_came_while_a_topic_rested_is_not_told_as_nothing_once_it_is_to_be_told_every_second() -> None:
    engine = settled(t=1, u=2)  # to u much comes, which is looked for all the time
    engine.run(50, t=1, u=2)
    engine.schedule.follow(["t", "u"], ["u"])
    engine.run(30, t=1, u=2)
    told = [one.arrivals for one in engine.said if one.topic == "t"]
    assert sum(map(len, told)) >= 20
    assert {count for arrivals in told for count in arrivals} == {1}


def test_of_a_topic_that_is_not_followed_it_is_no_news_that_it_does_not_rest() -> None:
    engine = settled(t=1)
    engine.disturb("u")
    assert engine.schedule.names == ["t"]


def test_a_topic_that_must_be_told_every_second_is_asked_for_ten_times_a_second() -> None:
    engine = Engine("t", seldom=False)
    engine.run(300, t=1)
    assert len(engine.questions("t")) == 300
    assert sum(sum(one.arrivals) for one in engine.said) >= 290


def test_bins_are_told_as_they_were_whatever_the_pace() -> None:
    engine = Engine("t")
    for number in range(400):
        engine.run(1, t=number % 3)
        if number % 97 == 96:
            engine.move("t")
    assert len(engine.said) > 20
    for one in engine.said:
        first = one.first_ns // BIN_NS
        kept = [engine.came["t"].get(first + at, (0, 0))[0] for at in range(len(one.arrivals))]
        assert one.arrivals == kept
    ends = [one.first_ns + len(one.arrivals) * BIN_NS for one in engine.said]
    assert ends == sorted(ends)


def test_a_topic_that_is_no_longer_followed_is_not_asked_for() -> None:
    engine = settled(t=1, u=1)
    engine.schedule.follow(["u"], ["u"])
    engine.run(20, u=1)
    assert engine.questions("t") == []
    assert engine.watched == ["u"]
