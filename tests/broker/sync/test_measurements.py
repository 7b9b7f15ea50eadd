"""Measurements on a mock clock, against a scripted leader and recorders that count what a test puts in."""

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.sync.measurements import Measurements
from srtm.control import (
    MeasuredTrace,
    MeasurementAnswer,
    MeasurementReport,
    MeasurementRequest,
    Problem,
    Promise,
)
from srtm.errors import Unavailable
from srtm.log import Log
from srtm.net.failover import Distributors

MS = 1_000_000
S = 1_000_000_000
TRACE = (["p0", "p1"], [0, 1], 77, [0, 5], [1, 2], [3, 4])
GO_ON = MeasurementAnswer(go_on=True)
REQUEST = MeasurementRequest(
    id="t#x:1", topic="t", percentile=99.0, target_ns=MS, share_version=3, after_ns=S // 2, at_most_ns=2 * S
)


class FakeRecorder:
    """Tells of each call to ``advance`` one interval, numbered by them. ``late``: in every second."""

    def __init__(self, topic, target_ns, at_s, late=0):
        self.topic, self.target_ns, self.at_s, self.late = topic, target_ns, at_s, late
        self.advanced = 0
        self.told = 0

    def advance(self):
        self.advanced += 1

    def intervals(self, end):
        columns = list(range(self.told, self.advanced + end))
        self.told = self.advanced + end
        return columns, [2 for _ in columns], [1 for _ in columns], [9 for _ in columns]

    def percentiles(self, percentile):
        return self.told, 10, 20, round(percentile)

    def recent(self, percentile):
        assert percentile == 99.0
        return 100, self.late, 5 * MS

    def gaps(self):
        return 4, 6

    def recording(self):
        return TRACE


class Leader:
    """Answers reports as ``answers`` says, the last of them for ever."""

    def __init__(self, base_url="http://d1:4190", answers=(GO_ON,)):
        self.base_url = base_url
        self.answers = list(answers)
        self.reports = []  # (time, report)
        self.targets = set()
        self.closed = False

    async def aclose(self):
        self.closed = True

    async def request(self, method, target, body=b"", *, timeout_s):
        assert timeout_s > 0
        await trio.lowlevel.checkpoint()
        self.targets.add((method, target))
        self.reports.append((trio.current_time(), msgspec.json.decode(body, type=MeasurementReport)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Problem):
            return answer.status, msgspec.json.encode(answer)
        return 200, msgspec.json.encode(answer)


class Rig:
    def __init__(self, *leaders):
        self.leaders = leaders or (Leader(),)
        self.applied = {"t": 3}
        self.recorders = []
        self.late = {}  # {topic: of 100 in every second}
        self.lines = []
        log = Log("b1", self.lines.append)

        def connect(url):
            raise AssertionError(url)

        def distributors():
            return Distributors(self.leaders, connect, log)

        self.measurements = Measurements("b1", "7", 18_000, lambda: self.applied, self.record, distributors, log)

    def record(self, topic, target_ns):
        if topic == "unlimited":
            raise ValueError("topic 'unlimited' has no limit")
        self.recorders.append(FakeRecorder(topic, target_ns, trio.current_time(), self.late.get(topic, 0)))
        return self.recorders[-1]

    @property
    def reports(self):
        return [report for _, report in self.leaders[0].reports]


@pytest.fixture
def rig(nursery):
    made = Rig()
    nursery.start_soon(made.measurements.run)
    return made


async def traced(leader):
    """Until a trace has come: a thread puts it together, which the clock knows nothing of."""
    for _ in range(1_000_000):
        if any(report.trace is not None for _, report in leader.reports):
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("no trace came")


def changed(request=REQUEST, **fields):
    return msgspec.structs.replace(request, **fields)


async def test_it_counts_once_the_share_is_in_force_and_the_buckets_had_their_time(rig, autojump_clock):
    rig.applied = {}
    rig.measurements.want([REQUEST])
    await trio.sleep(5)
    assert rig.recorders == []
    rig.applied = {"t": 3}
    rig.measurements.want([REQUEST])
    in_force_s = trio.current_time()
    await trio.sleep(1)
    (recorder,) = rig.recorders
    assert (recorder.topic, recorder.target_ns, recorder.at_s - in_force_s) == ("t", MS, pytest.approx(0.5))


async def test_it_reports_every_so_often_what_came_since_the_report_before(rig, autojump_clock):
    rig.measurements.want([REQUEST])
    await trio.sleep(0.5 + 0.65)
    assert rig.leaders[0].targets == {("POST", "/v1/brokers/b1/measurements/t%23x%3A1")}
    assert [at for at, _ in rig.leaders[0].reports] == pytest.approx([0.7, 0.9, 1.1])
    assert [report.sequence for report in rig.reports] == [1, 2, 3]
    assert [report.interval for report in rig.reports] == [[0], [1], [2]]
    first = rig.reports[0]
    assert (first.count, first.late, first.latency_ns, first.final) == ([2], [1], [9], False)
    assert (first.access_ns, first.processing_ns, first.total_ns) == (10, 20, 99)
    assert (first.incarnation, first.lab_service_time_ns, first.lost, first.unsent) == ("7", 18_000, 4, 6)


async def test_the_first_report_waits_until_enough_was_measured(rig, autojump_clock):
    rig.measurements.want([changed(at_least_ns=S)])
    await trio.sleep(0.5 + 1.1)
    assert [report.interval for report in rig.reports] == [[0, 1, 2, 3, 4]]


async def test_a_broken_promise_is_told_before_that(rig, autojump_clock):
    rig.late = {"old": 2, "fine": 1}
    others = [Promise(topic=topic, percentile=99.0, target_ns=4 * MS) for topic in ("old", "fine", "unlimited")]
    rig.measurements.want([changed(at_least_ns=2 * S, others=others)])
    await trio.sleep(0.5 + 1.1)
    assert [at for at, _ in rig.leaders[0].reports] == pytest.approx([1.1, 1.3, 1.5])
    assert {(report.others_kept, report.others_worst_ns) for report in rig.reports} == {(False, 5 * MS)}
    assert {recorder.topic for recorder in rig.recorders} == {"t", "old", "fine"}


async def test_while_it_is_held_it_tells_every_second_how_promises_are_kept_and_measures_nothing(rig, autojump_clock):
    rig.late = {"old": 2}
    others = [Promise(topic="old", percentile=99.0, target_ns=4 * MS)]
    rig.measurements.want([changed(held=True, others=others)])
    await trio.sleep(3.3)
    assert [at for at, _ in rig.leaders[0].reports] == pytest.approx([1.0, 2.0, 3.0])
    assert {recorder.topic for recorder in rig.recorders} == {"old"}
    last = rig.reports[-1]
    assert (last.others_kept, last.others_worst_ns, last.measured, last.interval) == (False, 5 * MS, 0, [])
    rig.measurements.want([changed(others=others)])
    await trio.sleep(0.1)
    rig.recorders.clear()
    await trio.sleep(0.9)
    (recorder,) = rig.recorders
    assert (recorder.topic, recorder.at_s) == ("t", pytest.approx(3.3 + 0.5))
    assert [report.sequence for report in rig.reports] == list(range(1, len(rig.reports) + 1))


async def test_while_buckets_fill_promises_are_watched(rig, autojump_clock):
    rig.late = {"old": 2}
    others = [Promise(topic="old", percentile=99.0, target_ns=4 * MS)]
    rig.measurements.want([changed(after_ns=4 * S, others=others)])
    await trio.sleep(2.5)
    assert [report.others_kept for report in rig.reports] == [False, False]


async def test_one_that_is_held_beside_nobody_says_nothing(rig, autojump_clock):
    rig.measurements.want([changed(held=True)])
    await trio.sleep(10)
    assert (rig.reports, rig.recorders) == ([], [])


async def test_told_to_forget_it_while_it_is_held_it_ends(rig, autojump_clock):
    rig.leaders[0].answers = [MeasurementAnswer(go_on=False)]
    others = [Promise(topic="old", percentile=99.0, target_ns=4 * MS)]
    rig.measurements.want([changed(held=True, others=others)])
    await trio.sleep(5)
    assert (len(rig.reports), rig.leaders[0].closed) == (1, True)


async def test_a_promise_is_kept_with_as_many_late_ones_as_its_percentile_allows(rig, autojump_clock):
    rig.late = {"fine": 1}
    rig.measurements.want([changed(others=[Promise(topic="fine", percentile=99.0, target_ns=4 * MS)])])
    await trio.sleep(0.5 + 1.1)
    assert all(report.others_kept for report in rig.reports)


async def test_after_its_time_it_is_final_and_waits_for_what_is_wanted_of_it(rig, autojump_clock):
    rig.measurements.want([REQUEST])
    await trio.sleep(10)
    assert [report.final for report in rig.reports] == [False] * 9 + [True]
    rig.measurements.want([changed(trace_wanted=True)])
    await traced(rig.leaders[0])
    assert rig.reports[-1].trace == MeasuredTrace(
        publishers=["p0", "p1"], publisher=[0, 1], first_ns=77, gap_ns=[0, 5], access_ns=[1, 2], processing_ns=[3, 4]
    )
    assert len(rig.reports) == 11


async def test_told_that_the_trace_is_wanted_it_sends_it_at_once_and_ends(rig, autojump_clock):
    rig.leaders[0].answers = [GO_ON, MeasurementAnswer(go_on=True, trace_wanted=True)]
    rig.measurements.want([REQUEST])
    await trio.sleep(0.5 + 0.4)
    await traced(rig.leaders[0])
    await wait_all_tasks_blocked()
    assert [report.trace is not None for report in rig.reports] == [False, False, True]
    assert [at for at, _ in rig.leaders[0].reports] == pytest.approx([0.7, 0.9, 0.9])
    assert rig.leaders[0].closed


async def test_a_sync_that_wants_the_trace_does_not_wait_for_the_next_report(rig, autojump_clock):
    rig.measurements.want([changed(report_ns=10 * S, at_most_ns=20 * S)])
    await trio.sleep(1)
    rig.measurements.want([changed(report_ns=10 * S, at_most_ns=20 * S, trace_wanted=True)])
    await traced(rig.leaders[0])
    assert [at for at, _ in rig.leaders[0].reports] == pytest.approx([1.0])
    assert rig.reports[0].trace is not None
    assert not rig.reports[0].final


async def test_one_that_was_told_to_forget_it_is_not_begun_again_while_it_is_still_named(rig, autojump_clock):
    rig.leaders[0].answers = [MeasurementAnswer(go_on=False)]
    rig.measurements.want([REQUEST])
    await trio.sleep(2)
    rig.measurements.want([REQUEST])
    await trio.sleep(2)
    assert (len(rig.reports), len(rig.recorders)) == (1, 1)
    rig.measurements.want([])
    rig.measurements.want([REQUEST])
    await trio.sleep(2)
    assert len(rig.recorders) == 2


async def test_one_that_is_no_longer_named_ends(rig, autojump_clock):
    rig.measurements.want([REQUEST, changed(id="u:1", topic="t")])
    await trio.sleep(1)
    rig.measurements.want([changed(id="u:1", topic="t")])
    before = len(rig.leaders[0].targets)
    rig.leaders[0].targets.clear()
    await trio.sleep(0.5)
    assert (before, rig.leaders[0].targets) == (2, {("POST", "/v1/brokers/b1/measurements/u%3A1")})


async def test_a_report_that_nobody_took_is_sent_again_as_it_was_to_whoever_leads(nursery, autojump_clock):
    standby = Problem(title="standby", status=503, detail="stands by", leader="http://d2:1")
    first = Leader("http://d1:1", [standby])
    second = Leader("http://d2:1", [Unavailable("no answer"), GO_ON])
    rig = Rig(first, second)
    nursery.start_soon(rig.measurements.run)
    rig.measurements.want([REQUEST])
    await trio.sleep(0.5 + 0.5)
    told = [report for _, report in second.reports]
    assert [report.sequence for report in told] == [1, 1, 2]
    assert told[0] == told[1] == rig.reports[0]


async def test_a_report_that_is_refused_ends_the_measurement_and_is_said(rig, autojump_clock):
    rig.leaders[0].answers = [Problem(title="not found", status=404, detail="no measurement of that name")]
    rig.measurements.want([REQUEST])
    await trio.sleep(5)
    assert len(rig.reports) == 1
    assert any("no measurement of that name" in line for line in rig.lines)


async def test_a_topic_without_a_limit_cannot_be_measured_and_is_said(rig, autojump_clock):
    rig.applied = {"unlimited": 3}
    rig.measurements.want([changed(topic="unlimited")])
    await trio.sleep(5)
    assert rig.reports == []
    assert any("has no limit" in line for line in rig.lines)


async def test_the_connections_are_closed_when_the_broker_ends(autojump_clock):
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.measurements.run)
        rig.measurements.want([REQUEST])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert rig.leaders[0].closed
