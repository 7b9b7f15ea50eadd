from broker import snapshot
from broker.snapshot import Latencies, LatencyNs
from broker.sync.reports import Reports, topic_latency
from srtm.control import ChannelQueue, SyncRequest
from tests.support.fake_engine import FakeEngine

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)


def told(engine, applied):
    reports = Reports()
    reports.note(snapshot.take_raw(engine).topics, applied)
    return reports.add_to(ABOUT).topics


def test_every_topic_is_reported_also_one_that_nobody_manages_or_publishes_to():
    """Consumers subscribe before anybody publishes, and messages may be left from an earlier process."""
    engine = FakeEngine()
    for name in ("managed", "busy", "idle"):
        engine.create_topic(name)
    engine.create_channel("idle", "a")
    engine.topics["busy"].received = 3
    reports = told(engine, {"managed": 7})
    assert [(report.topic, report.share_version, report.received, report.channels) for report in reports] == [
        ("managed", 7, 0, []),
        ("busy", 0, 3, []),
        ("idle", 0, 0, ["a"]),
    ]


def test_a_report_tells_of_messages_from_before_the_start():
    engine = FakeEngine()
    engine.create_topic("empty")
    engine.create_topic("full").messages.append(b"from the disk")
    assert [(report.topic, report.received, report.holds_messages) for report in told(engine, {})] == [
        ("empty", 0, False),
        ("full", 0, True),
    ]


def test_a_report_tells_of_the_network_where_it_is_known():
    engine = FakeEngine()
    engine.create_topic("far").network_ns = 2_500_000
    engine.create_topic("limited by nobody")
    assert [report.network_ms for report in told(engine, {})] == [2.5, None]


def test_a_topic_differs_once_it_comes_goes_or_gets_a_channel():
    engine, reports = FakeEngine(), Reports()

    def differs():
        found = reports.differ("t", snapshot.take_raw(engine, "t").topics)
        reports.note_one("t", snapshot.take_raw(engine, "t").topics, {})
        assert not reports.differ("t", snapshot.take_raw(engine, "t").topics)
        return found

    assert not differs()
    engine.create_topic("t")
    assert differs()
    engine.create_channel("t", "c")
    assert differs()
    engine.topics["t"].received += 1
    assert not differs()
    engine.delete_channel("t", "c")
    assert differs()
    engine.delete_topic("t")
    assert differs()


def test_a_report_carries_backlog_and_channels_of_its_topic():
    engine = FakeEngine()
    engine.set_bucket("t", 1_000_000, 1_000_000, False, 10, 10, 4, True)
    engine.create_channel("t", "c")
    engine.topics["t"].bucket |= {"backlog": 5, "largest_backlog": 6.5, "delayed": 9, "undeclared": 2}
    (report,) = told(engine, {"t": 4})
    assert (report.backlog, report.largest_backlog, report.delayed, report.undeclared) == (5, 6.5, 9, 2)
    assert report.channels == ["c"]


def test_latencies_are_told_in_milliseconds():
    nothing = LatencyNs(count=0, p50_ns=0, p95_ns=0, p99_ns=0, p999_ns=0, max_ns=0)
    some = LatencyNs(count=7, p50_ns=1_500_000, p95_ns=2_000_000, p99_ns=3_000_000, p999_ns=4_000_000, max_ns=5_000_000)
    told = topic_latency(Latencies(access=some, processing=nothing, consumer_wait=nothing, total=nothing))
    assert (told.access.count, told.access.p50_ms, told.access.max_ms) == (7, 1.5, 5.0)
    assert told.total.count == 0


def test_a_report_says_which_channels_hold_messages_and_what_no_channel_has():
    engine = FakeEngine()
    for topic in ("t", "idle"):
        engine.set_bucket(topic, 1_000_000, 1_000_000, False, 10, 10, 4, True)
        engine.create_channel(topic, "read")
    engine.topics["t"].messages = [b"m"] * 12
    engine.topics["t"].bucket |= {"backlog": 5}
    engine.topics["t"].nearness = {"depth": 3, "in_flight_count": 1, "client_count": 2}
    holds, idle = told(engine, {"t": 4, "idle": 4})
    assert holds.depth == 7
    assert holds.queues == [ChannelQueue(channel="read", depth=3, in_flight=1, consumers=2)]
    assert (idle.depth, idle.queues) == (0, [])
    assert [(one.consumed, one.consumers) for one in (holds, idle)] == [(["read"], [2]), ([], [])]
