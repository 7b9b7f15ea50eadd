"""The verdict on a promise, from reports that stand here."""

from __future__ import annotations

import msgspec
import pytest

from distributor.verdict.kept import PromiseVerdict, latest, least_messages, promise_verdict
from srtm.control import ChannelQueue, LatencyMs, LinkLatency, TopicLatency, TopicReport
from srtm.topics.spec import Slo
from tests.support.topic_reports import delay, period, report

P99 = Slo(percentile=99, latency_ms=5.0)
NONE = LatencyMs()


def over(origin: str, last: TopicLatency, **more: object) -> LinkLatency:
    known = LinkLatency(origin=origin, topic="cars", last_60s=last, since_start=last, recent=last)
    return msgspec.structs.replace(known, **more)


def told(slo: Slo = P99, **reports: TopicReport) -> PromiseVerdict:
    return promise_verdict(slo, reports)


def test_access_processing_and_network_count_and_the_wait_for_a_consumer_does_not():
    kept = told(a=report(period(3.0, 1.0, wait=900.0), network_ms=0.5))
    assert (kept.verdict, kept.last_60s.latency_ms, kept.last_60s.consumer_wait_ms) == ("kept", 4.5, 900.0)
    broken = told(a=report(period(3.0, 1.0), network_ms=1.5))
    assert (broken.verdict, broken.last_60s.latency_ms, broken.last_60s.largest) == ("broken", 5.5, "access")


def test_the_sum_of_two_percentiles_is_at_most_the_percentile_of_the_total():
    # Those who wait for tokens and those who wait for the processor are different messages.
    apart = msgspec.structs.replace(period(4.0, 4.0), total=delay(4.5, 1000))
    assert told(a=report(apart)).last_60s.latency_ms == 4.5


def test_the_worst_broker_decides_but_not_one_with_less_than_a_hundredth_of_the_messages():
    good, bad = report(period(1.0, 1.0, 99_000)), period(80.0, 1.0, 1_100)
    verdict = told(a=good, b=report(bad))
    assert (verdict.verdict, verdict.last_60s.broker, verdict.last_60s.messages) == ("broken", "b", 100_100)
    assert told(a=good, b=report(period(80.0, 1.0, 900))).verdict == "kept"


@pytest.mark.parametrize(("percentile", "least"), [(50, 10), (90, 50), (95, 100), (99, 500), (99.9, 5000)])
def test_a_period_says_something_if_five_of_its_messages_may_be_late(percentile, least):
    slo = Slo(percentile=percentile, latency_ms=5.0)
    assert least_messages(slo) == least
    assert told(slo, a=report(period(1.0, 1.0, least))).verdict == "kept"
    few = told(slo, a=report(period(80.0, 1.0, least - 1)))
    assert few.verdict == "unknown"
    assert few.last_60s.late
    assert f"{least:,} are needed" in few.reason


def test_where_the_last_minute_has_too_few_messages_the_time_since_the_start_stands():
    verdict = told(a=report(period(1.0, 1.0, 12), period(9.0, 1.0, 40_000)))
    assert (verdict.verdict, verdict.last_60s.verdict) == ("broken", "unknown")
    assert verdict.reason.startswith("since the start: p99 10 ms at a, promised 5 ms (last 60 s: 12 messages")
    assert verdict.decides is verdict.since_start


def test_nothing_is_known_of_a_topic_without_messages_or_without_reports():
    for verdict, why in ((told(), "no broker reports the topic"), (told(a=report(TopicLatency())), "no message came")):
        assert (verdict.verdict, verdict.reason) == ("unknown", f"last 60 s: {why}")


def test_where_nobody_reads_the_promise_is_unknown_unless_tokens_break_it_alone():
    unread = msgspec.structs.replace(period(1.0, 0.0), processing=NONE, total=NONE)
    verdict = told(a=report(unread), b=report(period(1.0, 1.0)))
    assert verdict.verdict == "unknown"
    assert "no consumer took what came at a" in verdict.reason
    assert verdict.last_60s.processing_ms is None
    late = msgspec.structs.replace(unread, access=delay(6.0, 1000))
    assert told(a=report(late), b=report(period(1.0, 1.0))).verdict == "broken"


def test_messages_that_wait_for_tokens_are_late_though_no_percentile_has_them_yet():
    starved = told(a=report(period(1.0, 1.0)), b=report(TopicLatency(), rate=10.9, backlog=4200))
    assert (starved.verdict, starved.last_60s.broker, starved.last_60s.largest) == ("broken", "b", "access")
    assert "4,200 messages wait at b, where tokens come at 10.9 msg/s" in starved.reason
    without_tokens = told(a=report(TopicLatency(), rate=0.0, backlog=600))
    assert (without_tokens.verdict, without_tokens.last_60s.latency_ms) == ("broken", None)
    soon = told(a=report(period(1.0, 1.0), backlog=10))  # one in a hundred may wait
    assert soon.verdict == "kept"


def test_of_a_percentile_that_is_not_reported_only_what_is_sure_is_said():
    slo = Slo(percentile=90, latency_ms=5.0)
    skewed = LatencyMs(count=1000, p50_ms=1.0, p95_ms=9.0, p99_ms=9.0, p999_ms=9.0, max_ms=9.0)
    assert told(slo, a=report(period(1.0, 1.0))).verdict == "kept"
    assert told(slo, a=report(period(9.0, 1.0))).verdict == "broken"
    between = told(slo, a=report(msgspec.structs.replace(period(1.0, 1.0), access=skewed, total=NONE)))
    assert (between.verdict, between.reason) == ("unknown", "last 60 s: p90 at a is between 2 and 10 ms")


def test_messages_that_nobody_took_count_though_no_histogram_has_them():
    nobody = TopicLatency()
    unread = report(nobody, depth=1232, backlog=368)
    starved = told(a=unread)
    assert (starved.verdict, starved.last_60s.messages) == ("broken", 1600)
    idle = told(a=report(nobody, depth=1232))
    assert (idle.verdict, idle.last_60s.messages) == ("unknown", 1232)
    assert "no consumer took what came at a" in idle.reason
    old = told(a=report(nobody, depth=10_000_000))
    assert old.last_60s.messages == 60 * 100 + 10  # what its share lets go in 60 s
    in_channels = [ChannelQueue(channel="c", depth=700), ChannelQueue(channel="d", depth=700)]
    assert told(a=report(nobody, queues=in_channels)).last_60s.messages == 700  # copies of the same


def test_the_worst_way_over_a_link_decides_if_it_has_a_hundredth_of_the_messages():
    each = period(1.0, 1.0, 50_000)
    here = {"a": report(each, recent=each), "b": report(each, recent=each)}
    late, few = over("a", period(1.0, 9.0, 1_100)), over("b", period(1.0, 90.0, 900))
    for judged in (promise_verdict(P99, here, {"c": [late, few]}), latest(P99, here, {"c": [late, few]})):
        assert judged.verdict == "broken"
        assert "p99 10 ms at c of messages from a, promised 5 ms" in judged.reason
    decides = promise_verdict(P99, here, {"c": [late, few]}).decides
    assert (decides.broker, decides.origin, decides.messages) == ("c", "a", 100_000)
    assert promise_verdict(P99, here, {"c": [few]}).verdict == "kept"


def test_the_network_of_a_link_counts_and_a_way_without_messages_does_not():
    here = {"a": report(period(1.0, 1.0))}
    way = over("a", period(1.0, 2.0), network_ms=2.5)
    verdict = promise_verdict(P99, here, {"b": [way]})
    assert (verdict.verdict, verdict.last_60s.latency_ms, verdict.last_60s.origin) == ("broken", 5.5, "a")
    assert promise_verdict(P99, here, {"b": [over("a", TopicLatency(), network_ms=9.0)]}).verdict == "kept"
