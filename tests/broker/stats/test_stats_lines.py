"""``/stats`` from a snapshot: nsqd's fields and filters, and its lines for people."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.snapshot import Channel, Client, EndToEnd, PubCount, Snapshot, Topic, take
from broker.stats.stats_json import stats_json
from broker.stats.stats_text import stats_text
from tests.support.fake_engine import FakeEngine

SERVICE = ("1.3.0", "OK", 1_700_000_000_000_000_000)
COUNTS = ("depth", "backend_depth", "dropped", "message_count")


def client(name: str, **more: Any) -> Client:
    numbers = ("ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count", "sample_rate")
    words = {"client_id": name, "hostname": name, "user_agent": "agent/1", "remote_address": "10.0.0.7:5021"}
    defaults = {**dict.fromkeys(numbers, 0), **words, "state": 3, "connect_ts": 1_700_000_000, "aware": False}
    return msgspec.convert({**defaults, **more}, Client)


def channel(name: str, *clients: Client, **more: Any) -> Channel:
    counts = (*COUNTS, "in_flight_count", "deferred_count", "requeue_count", "timeout_count")
    described = {
        "channel_name": name,
        "paused": False,
        "client_count": len(clients),
        **dict.fromkeys(counts, 0),
        **more,
    }
    return msgspec.structs.replace(msgspec.convert(described | {"clients": []}, Channel), clients=list(clients))


def snapshot(*topics: Topic, producers: tuple[Client, ...] = ()) -> Snapshot:
    empty = take(FakeEngine())  # type: ignore[arg-type]
    up_an_hour = {"wall_ns": 1_700_003_725_000_000_000, "memory_bytes": 0}
    return msgspec.structs.replace(empty, topics=list(topics), producers=list(producers), **up_an_hour)


def topic(name: str, *channels: Channel, **more: Any) -> Topic:
    engine = FakeEngine()
    engine.create_topic(name)
    (empty,) = take(engine).topics  # type: ignore[arg-type]
    return msgspec.structs.replace(empty, channels=list(channels), **more)


PUBLISHER = client("p", pub_counts=[PubCount(topic="a", count=3), PubCount(topic="b", count=4)])


def test_a_filter_by_topic_shows_what_producers_published_to_it() -> None:
    taken = snapshot(topic("a"), producers=(PUBLISHER,))
    (shown,) = stats_json(taken, *SERVICE, topic="a")["producers"]  # type: ignore[misc]
    assert shown["pub_counts"] == [{"topic": "a", "count": 3}]  # type: ignore[index]
    (shown,) = stats_json(taken, *SERVICE)["producers"]  # type: ignore[misc]
    assert len(shown["pub_counts"]) == 2  # type: ignore[index]


def test_a_topic_that_is_none_has_neither_topics_nor_producers() -> None:
    shown = stats_json(snapshot(producers=(PUBLISHER,)), *SERVICE, topic="none")
    assert (shown["topics"], shown["producers"]) == (None, None)


def test_a_topic_without_the_channel_asked_for_leaves_an_empty_list() -> None:
    shown = stats_json(snapshot(topic("a", channel("x"))), *SERVICE, topic="a", channel="y")
    assert shown["topics"] == []


def test_the_lines_for_people_are_those_that_scripts_know_from_nsqd() -> None:
    consumer = client("c", in_flight_count=1, ready_count=2, finish_count=3, message_count=4)
    measured = EndToEnd(count=1, values_ns=[1_250_000_000, 2_500_000, 1_500, 900])
    paused = channel("ch", consumer, paused=True, depth=5, in_flight_count=1, message_count=6, e2e=measured)
    taken = snapshot(topic("a", paused, depth=7, message_count=8), topic("b", paused=True), producers=(PUBLISHER,))
    lines = stats_text(taken, *SERVICE, include_mem=False).splitlines()
    assert lines == [
        "nsqd v1.3.0 (SRTM)",
        "start_time 2023-11-14T22:13:20Z",
        "uptime 1h2m5s",
        "",
        "Health: OK",
        "",
        "Topics:",
        "   [a              ] depth: 7     be-depth: 0     msgs: 8        e2e%: ",
        "   *P [ch                       ] depth: 5     be-depth: 0     inflt: 1    def: 0    re-q: 0     timeout: 0"
        "     msgs: 6        e2e%: 1.2s, 2.5ms, 1.5us, 900.0ns",
        "        [V2 c:5021 agent/1       ] state: 3 inflt: 1    rdy: 2    fin: 3        re-q: 0       "
        " msgs: 4        connected: 1h2m5s",
        "",
        "*P [b              ] depth: 0     be-depth: 0     msgs: 0        e2e%: ",
        "",
        "Producers:",
        "   [V2 p:5021 agent/1       ] msgs: 7        topics: a=3,b=4 connected: 1h2m5s",
    ]


def test_the_lines_say_where_there_is_nothing_and_what_memory_is_in_use() -> None:
    text = stats_text(snapshot(), *SERVICE)
    assert "\nTopics: None\n\nProducers: None\n" in text
    assert "\nMemory:\n   heap_objects             \t0\n" in text
    hidden = stats_text(snapshot(topic("a"), producers=(PUBLISHER,)), *SERVICE, include_clients=False)
    assert hidden.endswith("\nProducers: None\n")
