from broker import snapshot
from broker.snapshot import Latencies, LatencyNs
from broker.sync.reports import Reports, topic_latency
from srtm.control import SyncRequest
from tests.support.fake_engine import FakeEngine

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)


def told(engine, applied):
    reports = Reports()
    reports.note(snapshot.take_raw_topics(engine), applied)
    return reports.add_to(ABOUT).topics


def test_managed_topics_are_reported_even_without_traffic_and_others_only_with_it():
    engine = FakeEngine()
    for name in ("managed", "busy", "idle"):
        engine.create_topic(name)
    engine.topics["busy"].received = 3
    reports = told(engine, {"managed": 7})
    assert [(report.topic, report.share_version, report.received) for report in reports] == [
        ("managed", 7, 0),
        ("busy", 0, 3),
    ]


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
