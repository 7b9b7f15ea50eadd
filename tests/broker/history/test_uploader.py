"""The conversation about histories on a mock clock: a scripted leader, an engine that counts what a test says."""

import msgspec
import pytest
import trio

from broker.events import RateChanged, Unsteady
from broker.history.bins import EngineBins, EngineHistories
from broker.history.uploader import HistoryUploader
from srtm.control import HistoryReport, Problem
from srtm.errors import Unavailable
from srtm.log import Log
from srtm.net.failover import Distributors

BIN_NS = 100_000_000

CHANGE = RateChanged(topic="t", version=7, since_ns=1, span_ns=20_000_000, arrivals=9, waiting=0)


class Engine:
    """``rate`` messages in every bin of every topic."""

    def __init__(self):
        self.rate = 500
        self.asked = []  # (time, topics, since)
        self.watched = []

    def watch(self, topics, no_longer):
        self.watched = [topic for topic in self.watched if topic not in no_longer] + topics

    def histories(self, topics, since):
        self.asked.append((trio.current_time(), list(topics), since))
        until = round(trio.current_time() * 1e9) // BIN_NS
        first = max(since, until - 1)
        bins = [self.rate] * (until - first)
        told = [
            EngineBins(
                topic=topic,
                version=1,
                first=first,
                arrivals=bins,
                waiting=[0] * len(bins),
                unfinished=[0.0] * len(bins),
                delay_ns=[0] * len(bins),
                supply=[(first, 1_000.0)],
            )
            for topic in topics
        ]
        return msgspec.json.encode(EngineHistories(until=until, bin_ns=BIN_NS, wall_offset_ns=0, topics=told))


class Leader:
    base_url = "http://d1:4190"

    def __init__(self):
        self.reports = []  # (time, report)
        self.targets = set()
        self.trouble = None  # raised or, a Problem, answered
        self.silent = False
        self.closed = False

    async def aclose(self):
        self.closed = True

    async def request(self, method, target, body=b"", *, timeout_s):
        self.targets.add((method, target))
        self.reports.append((trio.current_time(), msgspec.json.decode(body, type=HistoryReport)))
        await trio.lowlevel.checkpoint()
        if self.silent:
            await trio.sleep(timeout_s)
            raise Unavailable("no answer")
        if isinstance(self.trouble, Problem):
            return self.trouble.status, msgspec.json.encode(self.trouble)
        if self.trouble is not None:
            raise self.trouble
        return 204, b""


class Rig:
    def __init__(self, *hanging):
        self.engine = Engine()
        self.leader = Leader()
        self.lines = []
        log = Log("b1", self.lines.append)
        known = Distributors([*hanging, self.leader], lambda _url: self.leader, log)
        self.histories = HistoryUploader("b1", "7", self.engine, known, log)

    @property
    def reports(self):
        return [report for _, report in self.leader.reports]


@pytest.fixture
def rig(nursery):
    made = Rig()
    nursery.start_soon(made.histories.run)
    return made


async def test_while_nothing_is_followed_the_engine_is_left_alone(rig, autojump_clock):
    rig.histories.follow([])  # as the first answer to a sync may say
    await trio.sleep(10)
    rig.histories.follow([])
    assert rig.engine.asked == []
    rig.histories.follow(["t"])
    await trio.sleep(1.05)
    assert 10 <= len(rig.engine.asked) <= 11
    rig.histories.follow([])
    await trio.sleep(10)
    assert len(rig.engine.asked) <= 12


async def test_all_that_is_followed_is_asked_for_at_once_and_each_bin_once(rig, autojump_clock):
    rig.histories.follow(["t", "u"])
    await trio.sleep(2)
    assert {tuple(topics) for _, topics, _ in rig.engine.asked} == {("t", "u")}
    sinces = [since for _, _, since in rig.engine.asked]
    assert sinces[0] == 0
    assert sinces[1:] == sorted(set(sinces[1:]))


async def test_reports_go_to_the_leader_once_a_second_and_at_once_on_a_change(rig, autojump_clock):
    rig.histories.follow(["t", "u"])
    await trio.sleep(5.05)
    assert rig.leader.targets == {("POST", "/v1/brokers/b1/history")}
    assert len(rig.reports) == 5
    assert rig.reports[-1].incarnation == "7"
    assert [history.topic for history in rig.reports[-1].topics] == ["t", "u"]
    rig.leader.reports.clear()
    moved_s = trio.current_time()
    for topic in ("t", "u"):
        rig.histories.note_rate_change(
            RateChanged(topic=topic, version=7, since_ns=5_000_000_000, span_ns=20_000_000, arrivals=9, waiting=0)
        )
    await trio.sleep(0.001)
    ((at, report),) = rig.leader.reports
    assert at == moved_s
    assert [(history.topic, history.change.arrivals) for history in report.topics] == [("t", 9), ("u", 9)]


async def test_a_change_shifts_no_question_to_the_engine(rig, autojump_clock):
    rig.histories.follow(["t"])
    await trio.sleep(1.05)
    rig.engine.asked.clear()
    for _ in range(20):
        await trio.sleep(0.05)
        rig.histories.note_rate_change(
            RateChanged(topic="t", version=7, since_ns=1, span_ns=20_000_000, arrivals=9, waiting=0)
        )
    assert len(rig.engine.asked) == 10


async def test_while_all_topics_rest_nothing_is_asked_and_another_one_is_at_once(rig, autojump_clock):
    rig.engine.rate = 1
    rig.histories.follow(["t"], ["t"])
    await trio.sleep(60)
    assert rig.engine.watched == ["t"]
    rig.engine.asked.clear()
    await trio.sleep(9.03)
    assert rig.engine.asked == []
    rig.histories.follow(["t", "u"], ["t", "u"])
    await trio.sleep(0.01)
    assert [topics for _, topics, _ in rig.engine.asked] == [["u"]]


async def test_a_topic_that_does_not_rest_is_asked_for_at_once_and_told_as_unsteady(rig, autojump_clock):
    rig.engine.rate = 1
    rig.histories.follow(["t"], ["t"])
    await trio.sleep(63)
    rig.leader.reports.clear()
    rig.histories.note_unsteady(Unsteady(topic="t"))
    await trio.sleep(0.01)
    (report,) = rig.reports
    assert [(one.topic, one.steady) for one in report.topics] == [("t", False)]
    assert rig.engine.watched == []


async def test_a_topic_whose_share_changes_is_told_as_unsteady_and_the_others_rest(rig, autojump_clock):
    rig.engine.rate = 1
    rig.histories.follow(["t", "u"], ["t", "u"])
    rig.histories.note_shares({"t": 1, "u": 1})
    await trio.sleep(63)
    rig.leader.reports.clear()
    rig.histories.note_shares({"t": 2, "u": 1})
    await trio.sleep(0.01)
    (report,) = rig.reports
    assert [(one.topic, one.steady) for one in report.topics] == [("t", False)]
    assert rig.engine.watched == ["u"]


async def test_what_nobody_takes_in_time_is_not_sent_again(rig, autojump_clock):
    rig.leader.trouble = Unavailable("no answer")
    rig.histories.follow(["t"])
    await trio.sleep(5)
    rig.leader.trouble = None
    rig.leader.reports.clear()
    await trio.sleep(2)
    ends = [report.topics[0].end_ns / 1e9 for report in rig.reports]
    assert ends[-1] > trio.current_time() - 1.5
    assert sum(len(report.topics[0].arrivals) for report in rig.reports) < 35


async def test_the_engine_is_asked_ten_times_a_second_while_the_distributor_is_away(rig, autojump_clock):
    rig.leader.silent = True
    rig.histories.follow(["t"])
    await trio.sleep(10.05)
    assert 100 <= len(rig.engine.asked) <= 101


async def test_what_becomes_steady_while_the_distributor_is_away_is_told_when_it_is_back(rig, autojump_clock):
    rig.histories.follow(["t"], ["t"])
    await trio.sleep(3)
    rig.leader.trouble = Unavailable("no answer")
    await trio.sleep(25)
    rig.leader.trouble = None
    rig.leader.reports.clear()
    await trio.sleep(10)
    assert [history.steady for report in rig.reports for history in report.topics][-1]
    assert len(rig.reports) <= 3


async def test_what_is_still_steady_is_named_after_minutes_and_again_until_that_is_taken(rig, autojump_clock):
    rig.histories.follow(["t"], ["t"])
    await trio.sleep(20)
    rig.leader.reports.clear()
    rig.leader.trouble = Problem(title="conflict", status=409, detail="no")
    await trio.sleep(300)
    refused = [report.still_steady for report in rig.reports if report.still_steady]
    rig.leader.trouble = None
    rig.leader.reports.clear()
    await trio.sleep(200)
    assert refused
    assert [(report.topics, report.still_steady) for report in rig.reports] == [([], ["t"])]
    rig.leader.reports.clear()
    await trio.sleep(900)
    assert [(report.topics, report.still_steady) for report in rig.reports] == [([], ["t"])] * 3


async def told_steady_without_answer(rig):
    """The first report that says so is on its way."""
    rig.histories.follow(["t"], ["t"])
    await trio.sleep(11.5)
    rig.leader.silent = True
    await trio.sleep(1)
    assert [history.steady for report in rig.reports[-2:] for history in report.topics] == [False, True]
    rig.leader.reports.clear()


async def test_steady_traffic_that_may_have_been_told_is_not_told_again_at_once(rig, autojump_clock):
    await told_steady_without_answer(rig)
    await trio.sleep(2)
    rig.leader.silent = False
    await trio.sleep(30)
    assert rig.reports == []


async def test_steady_traffic_that_may_have_been_told_is_told_again_once_somebody_listens(rig, autojump_clock):
    await told_steady_without_answer(rig)
    await trio.sleep(2)
    rig.leader.silent = False
    await trio.sleep(340)  # until it is named as still steady
    told = [history.steady for report in rig.reports for history in report.topics]
    assert told == [True]


async def test_steady_traffic_is_told_again_when_the_next_report_is_not_answered_either(rig, autojump_clock):
    await told_steady_without_answer(rig)
    rig.histories.note_rate_change(
        RateChanged(topic="t", version=7, since_ns=1, span_ns=20_000_000, arrivals=9, waiting=0)
    )
    await trio.sleep(3)
    rig.leader.silent = False
    await trio.sleep(30)
    assert rig.reports[-1].topics[0].steady


async def test_a_distributor_that_has_forgotten_is_told_of_steady_traffic_at_once(rig, autojump_clock):
    rig.histories.follow(["t"], ["t"])
    await trio.sleep(20)
    rig.leader.reports.clear()
    await trio.sleep(10)
    assert rig.reports == []
    rig.histories.report_all_again()
    await trio.sleep(2)
    assert [[history.steady for history in report.topics] for report in rig.reports] == [[True]]


async def test_a_silent_distributor_holds_nothing_up_for_more_than_a_second(rig, autojump_clock):
    rig.leader.silent = True
    rig.histories.follow(["t"])
    await trio.sleep(5.5)
    times = [at for at, _ in rig.leader.reports]
    assert len(times) >= 5


async def test_after_a_distributor_that_hangs_another_one_is_told(nursery, autojump_clock):
    hanging = Leader()
    hanging.silent = True
    made = Rig(hanging)
    nursery.start_soon(made.histories.run)
    made.histories.follow(["t"])
    await trio.sleep(5.5)
    assert len(hanging.reports) == 1
    assert made.reports


async def test_a_refusal_is_said_once_and_tried_again(rig, autojump_clock):
    rig.leader.trouble = Problem(title="not found", status=404, detail="no such route")
    rig.histories.follow(["t"])
    await trio.sleep(10)
    assert len(rig.reports) >= 4
    assert sum("no such route" in line for line in rig.lines) == 1


async def test_the_connections_are_closed_when_it_ends(autojump_clock):
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.histories.run)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert rig.leader.closed
