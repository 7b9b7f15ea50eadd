"""When the histories of steady traffic are told, and when not."""

from __future__ import annotations

import pytest

from broker.events import RateChanged
from broker.history.bins import EngineBins, EngineHistories
from broker.history.schedule import HistorySchedule
from srtm._native import ChangeDetector
from srtm.control import TopicHistory

BIN_NS = 100_000_000
SETTLING_BINS = 120
MINUTE_BINS = 600


class Broker:
    """Tells what is due as bins of one topic go by."""

    def __init__(self, seldom: bool = True) -> None:
        self.schedule = HistorySchedule()
        self.schedule.follow(["t"], ["t"] if seldom else [])
        self.until = 100_000
        self.detector = ChangeDetector()

    def bins(self, *arrivals: int, waiting: int = 0) -> list[TopicHistory]:
        told = []
        for count in arrivals:
            self.until += 1
            told += self._changes(count)
            bins = EngineBins(
                topic="t",
                version=1,
                first=self.until - 1,
                arrivals=[count],
                waiting=[waiting],
                unfinished=[0.0],
                delay_ns=[0],
                supply=[],
            )
            topics = [bins] if count or waiting else []
            answer = EngineHistories(until=self.until, bin_ns=BIN_NS, wall_offset_ns=0, topics=topics)
            told += self.schedule.due_reports(answer, self.until * BIN_NS)
        return told

    def _changes(self, count: int) -> list[TopicHistory]:
        """As the engine finds them within the bin of ``count`` messages."""
        told = []
        slots = BIN_NS // ChangeDetector.SLOT_NS
        for slot in range(slots):
            moved = self.detector.note(count * (slot + 1) // slots - count * slot // slots)
            if moved is not None:
                arrivals, span = moved
                since_ns = self.until * BIN_NS
                event = RateChanged(topic="t", version=7, since_ns=since_ns, span_ns=span, arrivals=arrivals, waiting=0)
                told.append(self.schedule.rate_changed(event, self.until * BIN_NS))
        return [one for one in told if one is not None]


def test_traffic_that_stays_as_it_is_is_told_once_a_second_until_it_is_steady_then_not_for_minutes() -> None:
    broker = Broker()
    settling = broker.bins(*[5] * (SETTLING_BINS + 20))
    assert len(settling) >= 12
    assert [one.steady for one in settling] == [False] * (len(settling) - 1) + [True]
    assert len(broker.bins(*[5] * 4 * MINUTE_BINS)) <= 1


def test_the_report_of_steady_traffic_is_of_the_last_second() -> None:
    [*_, last] = Broker().bins(*[5] * (SETTLING_BINS + 20))
    assert (last.arrivals, last.steady) == ([5] * 10, True)


def test_steady_traffic_is_only_named_as_such_once_in_five_minutes() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    named = 0
    for _ in range(10 * MINUTE_BINS):
        assert broker.bins(5) == []
        named += broker.schedule.renewals(broker.until * BIN_NS) == ["t"]
    assert named == 2


def test_what_nobody_heard_is_named_again_and_what_has_changed_is_not() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    later_ns = broker.until * BIN_NS + 300_000_000_000
    assert broker.schedule.renewals(later_ns) == ["t"]
    broker.schedule.renewals_lost(["t"])
    assert broker.schedule.renewals(later_ns + 5_000_000_000) == ["t"]
    broker.schedule.renewals_lost(["t"])
    broker.bins(500)
    assert broker.schedule.renewals(later_ns + 10_000_000_000) == []


def test_a_drift_over_the_time_at_which_traffic_is_named_as_steady_is_told() -> None:
    broker = Broker()
    broker.bins(*[100] * (SETTLING_BINS + 20))
    told, renewed = [], 0
    for at in range(6 * MINUTE_BINS):
        told += broker.bins(100 + at // 300)
        renewed += len(broker.schedule.renewals(broker.until * BIN_NS))
        if told:
            break
    assert told
    assert sum(told[0].arrivals) / len(told[0].arrivals) < 125


def test_steady_traffic_is_told_again_at_once_where_it_was_forgotten() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    broker.schedule.reports_lost(["t"])
    assert [one.steady for one in broker.bins(*[5] * 30)] == [True]


def test_a_topic_that_nothing_came_to_yet_is_not_steady() -> None:
    broker = Broker()
    broker.bins(*[0] * (SETTLING_BINS + 20))
    assert not any(one.steady for one in broker.bins(*[1, *[0] * 29]))


def test_a_change_of_steady_traffic_is_told_at_once_and_every_second_until_it_is_steady_again() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    [changed] = broker.bins(500)
    assert changed.change is not None
    assert not changed.steady
    assert len(broker.bins(*[500] * (SETTLING_BINS - 20))) >= 10


def test_the_end_of_steady_traffic_is_told() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    told = broker.bins(*[0] * 50)
    assert told[0].change is not None
    assert not any(one.steady for one in told)


def test_a_rate_that_doubles_slowly_is_told_as_it_grows() -> None:
    broker = Broker()
    broker.bins(*[100] * (SETTLING_BINS + 20))
    told = 100.0
    for at in range(5 * MINUTE_BINS):
        rate = 100 + at // 30
        for one in broker.bins(rate):
            told = sum(one.arrivals) / len(one.arrivals)
        assert abs(told / rate - 1) < 0.15


def test_a_queue_is_told_of_however_steady_the_traffic_is() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    told = broker.bins(*[5] * 10, waiting=3)
    assert len(told) >= 2
    assert not any(one.steady for one in told)


def test_traffic_is_not_steady_for_a_while_after_a_single_message_that_waited() -> None:
    broker = Broker()
    broker.bins(*[5] * (SETTLING_BINS + 20))
    told = [*broker.bins(5, waiting=1), *broker.bins(*[5] * (SETTLING_BINS + 10))]
    assert len(told) >= 12
    assert [one.steady for one in told] == [False] * (len(told) - 1) + [True]


@pytest.mark.parametrize("apart", [5, 30, 80])
def test_messages_now_and_then_are_told_to_be_steady_with_how_rare_they_are(apart: int) -> None:
    broker = Broker()
    told = broker.bins(*[1, *[0] * (apart - 1)] * (1800 // apart))
    steady = next(one for one in told if one.steady)
    assert len(steady.arrivals) >= min(apart, 100)
    assert sum(steady.arrivals) / len(steady.arrivals) == pytest.approx(1 / apart, rel=0.25)
    assert len(broker.bins(*[1, *[0] * (apart - 1)] * (900 // apart))) <= 1


def test_a_topic_that_is_not_told_seldom_is_told_every_second_for_ever() -> None:
    told = Broker(seldom=False).bins(*[5] * 2 * MINUTE_BINS)
    assert len(told) >= 119
    assert not any(one.steady for one in told)
