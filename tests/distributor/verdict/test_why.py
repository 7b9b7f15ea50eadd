"""Why a topic is late: every cause, from figures that stand here."""

from __future__ import annotations

import msgspec
import pytest

from distributor.verdict.kept import promise_verdict
from distributor.verdict.why import BrokerPart, TopicFigures, Why, why
from srtm.control import ChannelQueue, LatencyMs, LinkLatency, Throttling, TopicLatency, TopicReport
from srtm.topics.spec import Slo
from tests.support.topic_reports import period, report

P99 = Slo(percentile=99, latency_ms=5.0)
GOOD = report(period(1.0, 1.0))
LATE_BY_TOKENS = report(period(80.0, 1.0))
LATE_BY_PROCESSING = report(period(1.0, 40.0))


def part(name: str, reported: TopicReport | None = GOOD, **more: object) -> BrokerPart:
    """A broker with a share of 100 msg/s to which 90 come."""
    base = BrokerPart(broker=name, publishers=9, rate_assigned=90.0, rate=100.0, burst=10.0, report=reported)
    return msgspec.structs.replace(base, allocated=90.0, mcap=1000.0, **more)


def asked(*parts: BrokerPart, rate: float | None = None, mode: str = "fitted", missing: float = 0.0) -> Why:
    """Of topic "cars": r is the sum of the shares, unless ``rate`` says otherwise."""
    heard = {each.broker: each.report for each in parts if each.report is not None and not each.is_away}
    return why(
        TopicFigures(
            name="cars",
            rate=sum(each.rate for each in parts) if rate is None else rate,
            burst=sum(each.burst for each in parts),
            slo=P99,
            mode=mode,
            missing_rate=missing,
            promise=promise_verdict(P99, heard),
            parts=parts,
        )
    )


def queue(depth: int, consumers: int, in_flight: int = 0, **more: object) -> TopicReport:
    held = ChannelQueue(channel="c", depth=depth, consumers=consumers, in_flight=in_flight)
    return msgspec.structs.replace(GOOD, channels=["c"], queues=[msgspec.structs.replace(held, **more)])


def test_nothing_is_found_where_the_promise_is_kept_and_where_nothing_came():
    answer = asked(part("a"), part("b"))
    assert (answer.promise, answer.cause, answer.also) == ("kept", "nothing", [])
    assert answer.sentence == "the promise is kept: last 60 s: p99 2 ms at a, promised 5 ms"
    silent = asked(part("a", report(TopicLatency())))
    assert (silent.promise, silent.cause) == ("unknown", "nothing")
    assert silent.sentence.endswith("no message came")


# Links


@pytest.mark.parametrize(
    ("last", "network_ms", "cause", "told"),
    [
        (period(1.0, 40.0), 0.1, "broker", "processing takes 40 ms from a to subscribers at b"),
        (period(1.0, 1.0), 30.0, "network", "the link from a to subscribers at b takes 30 ms of the 5 ms promised"),
        (period(80.0, 1.0), 0.1, "bucket", "messages wait 80 ms for tokens at a"),
    ],
)
def test_what_is_late_over_a_link_is_said_of_both_brokers_or_of_the_tokens_at_the_first(last, network_ms, cause, told):
    way = LinkLatency(origin="a", topic="cars", network_ms=network_ms, last_60s=last, since_start=last)
    promise = promise_verdict(P99, {"a": GOOD}, {"b": [way]})
    answer = why(TopicFigures(name="cars", rate=100.0, burst=10.0, slo=P99, promise=promise, parts=[part("a")]))
    assert (answer.promise, answer.cause) == ("broken", cause)
    assert told in answer.sentence


# Bucket


def test_more_comes_than_r_lets_go():
    answer = asked(part("a", LATE_BY_TOKENS, arrival_rate=130.0), part("b", arrival_rate=90.0))
    assert (answer.cause, answer.broker, answer.promise) == ("bucket", "a", "broken")
    assert answer.sentence == ("messages wait 80 ms for tokens at a: 220 msg/s come to all brokers, and r is 200 msg/s")
    assert answer.figures["enough_rate"] == pytest.approx(242.0)
    assert "242" in answer.remedy


def test_the_share_of_one_broker_is_too_small_though_r_would_do():
    late = part("a", LATE_BY_TOKENS, arrival_rate=130.0)
    answer = asked(late, part("b", arrival_rate=10.0))
    assert (answer.cause, answer.broker) == ("bucket", "a")
    assert "130 msg/s come there, and its share is 100 of 200 msg/s" in answer.sentence
    assert answer.figures["enough_share_rate"] == pytest.approx(143.0)
    assert "srtm topic show cars" in answer.remedy
    assert "srtm topic set cars --mode fitted" in asked(late, part("b", arrival_rate=10.0), mode="static").remedy


def test_without_histories_what_is_declared_stands_for_what_comes():
    answer = asked(part("a", LATE_BY_TOKENS, rate_assigned=130.0), part("b", rate_assigned=10.0))
    assert "130 msg/s are declared there" in answer.sentence


def test_bursts_are_too_large_for_the_bucket_and_the_burst_that_would_do_is_told():
    bursting = msgspec.structs.replace(LATE_BY_TOKENS, largest_backlog=18.0)
    answer = asked(part("a", bursting, arrival_rate=90.0), part("b"))
    assert (answer.cause, answer.broker) == ("bucket", "a")
    # 18 messages more than r let go: of a bucket of 17.5 half a message waits, 5 ms at 100 msg/s.
    assert answer.figures["enough_share_burst"] == pytest.approx(17.5)
    assert answer.figures["enough_burst"] == pytest.approx(27.5)
    assert "up to 18 messages more came there than r let go, and its burst is 10" in answer.sentence


def test_what_waited_before_the_last_minute_is_not_blamed_on_a_bucket_that_would_do():
    past = msgspec.structs.replace(LATE_BY_TOKENS, largest_backlog=3.0)
    answer = asked(part("a", past, arrival_rate=90.0), part("b"))
    assert answer.cause == "bucket"
    assert "rate and burst sufficed over the last 60 s" in answer.sentence


def test_a_share_that_was_too_small_until_lately_is_told_with_how_long_messages_still_wait():
    filled = msgspec.structs.replace(LATE_BY_TOKENS, largest_backlog=609.0, backlog=368)
    late = part("a", filled, arrival_rate=90.0, least_rate=10.9)
    answer = asked(late, part("b"))
    assert (answer.cause, answer.broker) == ("bucket", "a")
    assert "its share was 10.9 msg/s within the last 60 s, less than came; it is 100 msg/s now" in answer.sentence
    assert answer.figures["drained_in_s"] == pytest.approx(36.8)  # 100 msg/s come out, 90 go in
    of_others = asked(msgspec.structs.replace(late, misplaced_rate=90.0), part("b"))
    assert of_others.cause == "placement"
    assert of_others.sentence.endswith("90 msg/s come there from publishers that belong elsewhere")
    assert "up to 609 messages" in asked(msgspec.structs.replace(late, least_rate=95.0), part("b")).sentence


def test_a_share_that_was_too_small_is_told_although_all_publishers_have_stopped_since():
    filled = report(period(80.0, 1.0, count=5_400), largest_backlog=609.0)  # 90 msg/s for a minute
    stopped = part("a", filled, arrival_rate=0.0, least_rate=10.9)
    answer = asked(stopped, part("b", arrival_rate=0.0))
    assert "its share was 10.9 msg/s within the last 60 s, less than came" in answer.sentence
    assert "enough_share_burst" not in answer.figures


# Placement


def test_publishers_send_to_a_broker_that_they_do_not_belong_to():
    ids = [f"w-{i}" for i in range(20)]
    starved = part("a", LATE_BY_TOKENS, rate=10.9, arrival_rate=199.0, misplaced_rate=199.0, misplaced=ids)
    answer = asked(starved, part("b", rate=249.1, rate_assigned=199.0))  # nothing came to b: it tells of nothing
    assert (answer.cause, answer.broker) == ("placement", "a")
    assert "199 msg/s come there from publishers that belong elsewhere" in answer.sentence
    assert "(w-0, w-1, w-2, w-3, w-4 and 15 more)" in answer.sentence
    assert answer.figures["misplaced"] == 20
    assert "srtm topic publishers cars" in answer.remedy


def test_pinned_publishers_are_named_where_the_promise_is_broken():
    ids = [f"w-{i}" for i in range(7)]
    answer = asked(part("a", LATE_BY_TOKENS), part("b", pinned=ids))
    (finding,) = [one for one in answer.also if one.cause == "placement"]
    assert (answer.cause, finding.broker, finding.figures["pinned"]) == ("bucket", "b", 7)
    assert finding.sentence == (
        "7 publishers did not move when told, and stay at b (w-0, w-1, w-2, w-3, w-4 and 2 more)"
    )
    assert asked(part("a"), part("b", pinned=ids)).cause == "nothing"  # nobody is late


def test_publishers_belong_to_a_broker_that_does_not_run():
    answer = asked(part("a"), part("b", state="silent", is_away=True))
    assert (answer.cause, answer.broker, answer.promise) == ("placement", "b", "kept")
    assert answer.sentence == "b is silent, and 9 publishers belong there: what they send has no broker"
    assert "srtm brokers dead b" in answer.remedy
    assert asked(part("a"), part("b", is_away=True, publishers=0)).cause == "nothing"


def test_publishers_have_no_broker():
    answer = asked(part("a"), missing=8170.0)
    assert (answer.cause, answer.broker) == ("placement", None)
    assert "publishers of 8,170 msg/s have no broker" in answer.sentence


# Broker and network


@pytest.mark.parametrize(
    ("more", "told", "remedy"),
    [
        ({"throttling": Throttling(quota_cores=1.5, throttled_share=0.12)}, "a quota of 1.5 cores holds", "CPU quota"),
        ({"throttling": Throttling(steal_share=0.03)}, "its host gives 3% of the processor time", "another host"),
        ({"allocated": 990.0}, "it carries 990 of 1,000 msg/s", "add a broker"),
        ({}, "it carries 90 of 1,000 msg/s, and nothing holds its process back", "capacity bench a --slo p99:5ms"),
    ],
)
def test_a_broker_is_slow_because_of_a_quota_its_host_or_its_load(more, told, remedy):
    slow = msgspec.structs.replace(part("a", LATE_BY_PROCESSING), **more)
    answer = asked(slow, part("b"))
    assert (answer.cause, answer.broker) == ("broker", "a")
    assert answer.sentence.startswith("processing takes 40 ms at a: ")
    assert told in answer.sentence
    assert remedy in answer.remedy


@pytest.mark.parametrize(
    ("recent_ms", "told", "remedy"),
    [
        (1.0, "it took 1 ms over the last 5 to 10 s, and what waited there is gone", "nothing now"),
        (20.0, "it carries 990 of 1,000 msg/s", "add a broker"),
    ],
)
def test_a_queue_that_is_gone_is_not_blamed_on_a_broker_that_is_full(recent_ms, told, remedy):
    reported = msgspec.structs.replace(LATE_BY_PROCESSING, recent=period(1.0, recent_ms))
    answer = asked(msgspec.structs.replace(part("a", reported), allocated=990.0), part("b"))
    assert (answer.promise, answer.cause) == ("broken", "broker")
    assert told in answer.sentence
    assert answer.remedy.startswith(remedy)


def test_a_broker_of_which_nobody_took_a_message_lately_is_not_said_to_take_without_end():
    reported = msgspec.structs.replace(
        LATE_BY_PROCESSING, recent=msgspec.structs.replace(period(1.0, 1.0), processing=LatencyMs())
    )
    answer = asked(part("a", reported), part("b"))
    assert (answer.cause, answer.broker) == ("broker", "a")
    assert "without end" not in answer.sentence
    assert "what waited there is gone" not in answer.sentence


def test_the_network_takes_the_most():
    answer = asked(part("a", report(period(1.0, 1.0), network_ms=30.0)))
    assert (answer.cause, answer.broker, answer.figures["network_ms"]) == ("network", "a", 30.0)
    assert "takes 30 ms of the 5 ms promised" in answer.sentence


# Consumers


def test_nobody_ever_subscribed():
    unread = msgspec.structs.replace(GOOD, depth=200)
    answer = asked(part("a", unread))
    assert (answer.cause, answer.broker) == ("consumer", "a")
    assert answer.sentence == "200 messages wait at a: nobody ever subscribed, no channel exists"
    paused = asked(part("a", msgspec.structs.replace(unread, channels=["c"])))
    assert "the topic is paused there" in paused.sentence


def test_where_nobody_reads_so_that_the_promise_is_unknown_that_is_the_cause():
    unread = msgspec.structs.replace(period(1.0, 0.0), processing=LatencyMs(), total=LatencyMs())
    answer = asked(part("a", msgspec.structs.replace(report(unread), depth=1000)))
    assert (answer.promise, answer.cause) == ("unknown", "consumer")


@pytest.mark.parametrize(
    ("reported", "told"),
    [
        (queue(40, consumers=0), "no consumer is connected"),
        (queue(40, consumers=2), "2 consumers gave this broker no credit (RDY 0)"),
        (queue(40, consumers=2, in_flight=2, paused=True), "the channel is paused"),
        (
            msgspec.structs.replace(queue(40, consumers=1, in_flight=1), last_60s=period(1.0, 1.0, wait=900.0)),
            "1 consumer did not keep up: p99 900 ms",
        ),
    ],
)
def test_messages_wait_in_a_channel(reported, told):
    answer = asked(part("a", reported))
    assert (answer.cause, answer.broker, answer.promise) == ("consumer", "a", "kept")
    assert answer.sentence == f"40 messages wait in channel c at a: {told}"
    assert answer.figures["depth"] == 40


def test_one_message_waits():
    sentence = asked(part("a", queue(1, consumers=0))).sentence
    assert sentence == "1 message waits in channel c at a: no consumer is connected"


def test_consumers_that_keep_up_are_not_blamed():
    assert asked(part("a", queue(40, consumers=1, in_flight=1))).cause == "nothing"
    assert asked(part("a", queue(0, consumers=1, in_flight=1))).cause == "nothing"


# Several


def test_what_breaks_the_promise_comes_first_and_the_rest_stands_beside_it():
    late = part("a", LATE_BY_TOKENS, arrival_rate=130.0)
    answer = asked(late, part("b", queue(40, consumers=0)), missing=5.0)
    assert [answer.cause, *(each.cause for each in answer.also)] == ["bucket", "placement", "consumer"]


def test_a_broker_that_is_away_says_nothing_on_consumers():
    assert asked(part("a"), part("b", queue(40, consumers=0), is_away=True, publishers=0)).cause == "nothing"
