"""Who sends what, and what a run came to."""

import numpy as np
import pytest

from bench.harness.cluster_runs.trace import Trace
from bench.harness.load.run import Histograms, RunResult
from bench.harness.results.results import merged
from bench.testbed.net.layout import Host, Link, hosts
from bench.testbed.net.one_way_delay import OneWay
from bench.testbed.outcome import curves, judged, outcome, shown
from bench.testbed.probes.listening import Heard, note
from bench.testbed.session import TOPIC, UNREAD, Session, Traffic, drain_s, plan
from tests.support.run_results import histogram

LAYOUT = hosts()
BROKERS = LAYOUT.of("broker")
MS = 1_000_000
TRAFFIC = Traffic(publishers=8, group_size=2, promise_ms=5.0)
ASSIGNED = {"ids": [f"p{at}" for at in range(8)], "brokers": [BROKERS[at % 2].name for at in range(8)]}


def test_every_publisher_sends_from_one_host_and_groups_stay_together():
    plans = [plan(TRAFFIC, ASSIGNED, BROKERS, host, 2, 1.0) for host in range(2)]
    sent = [(wanted.publishers.ids, wanted.publishers.group) for wanted in plans if wanted is not None]
    assert sent == [(["p0", "p1", "p4", "p5"], [0, 0, 2, 2]), (["p2", "p3", "p6", "p7"], [1, 1, 3, 3])]


def test_publishers_send_to_the_brokers_that_they_are_assigned_to_and_read_nothing_of_it():
    wanted = plan(TRAFFIC, ASSIGNED, BROKERS, 0, 2, 1.0)
    assert wanted is not None
    assert wanted.targets == ["10.99.0.11:4150", "10.99.0.12:4150"]
    assert wanted.publishers.target == [0, 1, 0, 1]
    assert {one.channel for one in wanted.subscribers} == {UNREAD}


def test_whoever_sends_stays_for_the_way_there_and_back_of_the_longest_links():
    near, far = hosts(), hosts(link=Link(delay_ms=20.0), each=["broker2:delay_ms=100", "broker2:jitter_ms=25"])
    assert (drain_s(near), drain_s(far)) == (1.0, 1.5)
    wanted = plan(TRAFFIC, ASSIGNED, BROKERS, 0, 2, drain_s(far))
    assert wanted is not None
    assert wanted.drain_s == 1.5


def test_a_host_without_publishers_sends_nothing():
    assert plan(TRAFFIC, ASSIGNED, BROKERS, 4, 5, 1.0) is None


def test_the_topic_has_the_papers_envelope():
    document = TRAFFIC.document()
    assert (document["rate"], document["burst"]) == (pytest.approx(88.0), "auto")


def test_only_measured_messages_of_the_generator_are_heard():
    heard = Heard()
    head = (7).to_bytes(8) + (3).to_bytes(4)
    tail = (2).to_bytes(8) + (500).to_bytes(8) + b"pattern"
    for measured in (1, 0):
        note(heard, 1, head + measured.to_bytes(4) + tail, 900)
    note(heard, 0, b"something else", 900)
    assert (heard.source, heard.run, heard.publisher, heard.sequence) == ([1], [7], [3], [2])
    assert (heard.intended_ns, heard.received_ns, heard.foreign) == ([500], [900], 1)


def sent(offered: int, whole: int, late_ns: int) -> RunResult:
    empty = histogram(1e-6)
    histograms = Histograms(latency=empty, lateness=histogram(late_ns / 1e6), ack=empty)
    fields = dict.fromkeys(RunResult.__struct_fields__, 0)
    texts = {"reasons": [], "errors": {}, "error_texts": [], "targets": [], "each": ""}
    given = {"valid": True, "stopped": False, "offered": offered, "sent": whole}
    return RunResult(**{**fields, **texts, **given, "histograms": histograms})


def trace(arrival_ms: list[int], due_ms: list[int], sent_ms: list[int]) -> Trace:
    columns = [np.array(values, dtype=np.int64) * MS for values in (arrival_ms, due_ms, sent_ms, sent_ms)]
    return Trace(["p0"], np.zeros(len(arrival_ms), dtype=np.int64), *columns)


def way(source: Host, target: Host, *took_ms: int) -> OneWay:
    return OneWay(source, target, sent=len(took_ms) + 1, took_ns=[took * MS for took in took_ms])


def session(**changed: object) -> Session:
    """Two messages by broker 1, one by broker 2; the first arrival of broker 1 is of the warm-up."""
    heard = Heard(
        source=[0, 0, 1],
        run=[7, 7, 7],
        publisher=[0, 0, 1],
        sequence=[1, 2, 1],
        intended_ns=[100 * MS, 110 * MS, 120 * MS],
        received_ns=[103 * MS, 114 * MS, 121 * MS],
    )
    one, two = BROKERS
    publisher, subscriber = LAYOUT.of("publisher")[0], LAYOUT.of("subscriber")[0]
    fields = {
        "view": {"name": TOPIC},
        "brokers": BROKERS,
        "sent": [sent(3, 3, 1000)],
        "heard": [heard],
        "traces": {
            one.name: trace([50, 101, 111], [90, 101, 112], [90, 102, 113]),
            two.name: trace([120], [120], [121]),
        },
        "to_brokers": [way(publisher, one, 1, 1), way(publisher, two, 2)],
        "from_brokers": [way(one, subscriber, 3), way(two, subscriber, 4)],
        "started_ns": 0,
    }
    return Session(**{**fields, **changed})


def test_one_way_latency_is_told_by_broker_and_by_part():
    found = outcome(session(), TRAFFIC)
    one, two, everything = found.parts
    assert (one.messages, one.max_ms, one.least_ms) == (2, 4.0, 3.0)
    assert (one.access_p99_ms, one.inside_p50_ms, one.inside_p99_ms) == (1.0, 1.0, 2.0)
    assert (one.to_p50_ms, one.from_p50_ms, two.to_p50_ms, two.from_p50_ms) == (1.0, 3.0, 2.0, 4.0)
    assert (everything.messages, everything.max_ms) == (3, 4.0)
    assert (found.sent, found.received, found.lost, found.duplicates) == (3, 3, 0, 0)
    assert (found.datagrams, found.datagrams_lost) == (9, 4)


def test_its_curves_are_what_was_heard_and_what_the_senders_told():
    found = curves(session(), TRAFFIC)
    assert [(one.start_s, one.count, one.max_ms) for one in found.timeline] == [(0.0, 3, 4.0)]
    assert merged([found.histograms.latency]).get_total_count() == 3
    assert merged([found.histograms.lateness]).get_total_count() == len(session().sent)
    assert found.duration_s == TRAFFIC.seconds


def test_a_run_of_which_nothing_was_heard_has_curves_without_a_second():
    found = curves(session(heard=[Heard()]), TRAFFIC)
    assert found.timeline == []
    assert merged([found.histograms.latency]).get_total_count() == 0


def test_a_promise_that_is_kept_by_the_worst_broker_is_kept():
    for promise_ms, reached in ((4.0, True), (3.9, False)):
        traffic = Traffic(publishers=8, promise_ms=promise_ms)
        verdict = judged(outcome(session(), traffic), traffic, ["rate by tbf"])
        assert verdict.reached == reached
        assert "rate by tbf" in shown(outcome(session(), traffic), verdict, ["rate by tbf"])


def test_a_lost_message_breaks_the_promise_and_one_received_twice_is_counted():
    once = session().heard[0]
    again = Heard(**{name: getattr(once, name)[:1] for name in once.__struct_fields__ if name != "foreign"})
    found = outcome(session(heard=[once, again], sent=[sent(4, 4, 1000)]), TRAFFIC)
    assert (found.received, found.lost, found.duplicates) == (4, 1, 1)
    assert not judged(found, TRAFFIC, []).reached


@pytest.mark.parametrize(
    ("sender", "words"), [(sent(3, 3, 2 * MS), "late by 2"), (sent(4, 3, 1000), "3 of 4 messages were sent")]
)
def test_a_run_whose_generator_was_late_or_sent_too_little_does_not_count(sender, words):
    [reason] = outcome(session(sent=[sender]), TRAFFIC).reasons
    assert words in reason


def test_a_run_in_which_nothing_was_heard_has_no_latency_and_loses_everything():
    found = outcome(session(heard=[Heard()]), TRAFFIC)
    assert (found.received, found.lost, found.parts[0].p99_ms) == (0, 3, 0.0)
    assert not judged(found, TRAFFIC, []).reached
