"""What is pushed to a statsd: nsqd's names, differences for counters, whole lines in packets of bounded size."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from broker import snapshot
from broker.config import StatsdConfig
from broker.snapshot import Snapshot
from broker.stats.mqtt_channels import with_mqtt_channels
from broker.stats.statsd import Lines, key_prefix, packets, push
from srtm.log import Log
from tests.support.fake_engine import FakeEngine

QUIET = StatsdConfig(mem_stats=False)


def engine_with(**topics: int) -> FakeEngine:
    engine = FakeEngine()
    for name, count in topics.items():
        engine.create_topic(name).messages += [b"12345"] * count
    return engine


def test_the_prefix_names_this_broker_and_ends_with_a_dot() -> None:
    assert key_prefix("nsq.%s", "my.host", 4151) == "nsq.my_host_4151."
    assert key_prefix("plain.", "h", 1) == "plain."
    assert key_prefix("%s", "::1", 1) == "[__1]_1."
    assert key_prefix("", "h", 1) == ""


def test_a_topic_and_its_channels_come_in_nsqds_names() -> None:
    engine = engine_with(t=2)
    engine.create_channel("t", "c")
    assert Lines("p.", QUIET, ()).of(snapshot.take(engine)) == [
        "p.topic.t.message_count:2|c\n",
        "p.topic.t.message_bytes:10|c\n",
        "p.topic.t.depth:2|g\n",
        "p.topic.t.backend_depth:0|g\n",
        "p.topic.t.channel.c.message_count:0|c\n",
        "p.topic.t.channel.c.requeue_count:0|c\n",
        "p.topic.t.channel.c.timeout_count:0|c\n",
        "p.topic.t.channel.c.depth:0|g\n",
        "p.topic.t.channel.c.backend_depth:0|g\n",
        "p.topic.t.channel.c.in_flight_count:0|g\n",
        "p.topic.t.channel.c.deferred_count:0|g\n",
        "p.topic.t.channel.c.clients:0|g\n",
    ]


def test_the_name_of_a_shared_group_of_mqtt_ends_no_field_of_a_line() -> None:
    engine = engine_with(t=0)
    engine.mqtt_topics = [
        {
            "topic": "t",
            "group": "$share/g:1|x/a/#",
            "depth": 3,
            "in_flight": 0,
            "messages": 3,
            "holders": 1,
            "dropped": 0,
        }
    ]
    lines = Lines("", QUIET, ()).of(with_mqtt_channels(snapshot.take(engine)))
    assert "topic.t.channel._share_g_1_x_a_#.depth:3|g\n" in lines


def test_counters_are_what_came_since_the_last_push_and_a_topic_made_anew_starts_over() -> None:
    engine = engine_with(t=5)
    lines = Lines("", QUIET, ())
    assert "topic.t.message_count:5|c\n" in lines.of(snapshot.take(engine))
    engine.topics["t"].messages += [b"x"] * 3
    assert "topic.t.message_count:3|c\n" in lines.of(snapshot.take(engine))
    assert "topic.t.message_count:0|c\n" in lines.of(snapshot.take(engine))
    engine.delete_topic("t")
    engine.create_topic("t").messages.append(b"x")
    assert "topic.t.message_count:1|c\n" in lines.of(snapshot.take(engine))


def test_latencies_are_named_by_percentile() -> None:
    engine = engine_with(t=0)
    engine.topics["t"].e2e = {"count": 3, "values_ns": [900, 500]}
    engine.create_channel("t", "c")
    said = Lines("", QUIET, (0.99, 0.5)).of(snapshot.take(engine))
    own = [line for line in said if "e2e" in line and "channel" not in line]
    assert own == ["topic.t.e2e_processing_latency_99:900|g\n", "topic.t.e2e_processing_latency_50:500|g\n"]


def test_a_channel_without_a_fin_has_latencies_of_0_and_a_topic_without_a_channel_none() -> None:
    engine = engine_with(t=0, u=0)
    for topic in ("t", "u"):
        engine.topics[topic].e2e = {"count": 0, "values_ns": [0]}
    engine.create_channel("t", "c")
    said = [line for line in Lines("", QUIET, (0.99,)).of(snapshot.take(engine)) if "e2e" in line]
    assert said[0] == "topic.t.e2e_processing_latency_99:0|g\n"
    assert not any(".u." in line for line in said)


def test_ephemeral_ones_are_left_out_when_asked_and_memory_when_not_wanted() -> None:
    engine = engine_with(t=1)
    engine.create_topic("u#ephemeral")
    engine.create_channel("t", "c#ephemeral")
    config = StatsdConfig(exclude_ephemeral=True)
    said = Lines("", config, ()).of(snapshot.take(engine))
    assert not any("ephemeral" in line for line in said)
    assert next(line for line in said if line.startswith("mem.")) == "mem.heap_objects:0|g\n"
    assert said[-1] == "mem.gc_runs:0|c\n"


@given(st.lists(st.text(st.characters(codec="ascii"), min_size=1, max_size=30)), st.integers(1, 60))
def test_packets_hold_whole_lines_in_order_and_only_a_line_that_is_longer_alone_is_over_the_size(
    lines: list[str], size: int
) -> None:
    found = packets(lines, size)
    assert b"".join(found) == "".join(lines).encode()
    ends = {len("".join(lines[: i + 1])) for i in range(len(lines))}
    at = 0
    for packet in found:
        at += len(packet)
        assert at in ends
        assert len(packet) <= size or packet.decode() in lines


async def test_a_push_goes_out_every_interval_whatever_happens_between(nursery: trio.Nursery) -> None:
    said: list[str] = []
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as receiver:
        await receiver.bind(("127.0.0.1", 0))
        port = receiver.getsockname()[1]
        config = StatsdConfig(address=f"127.0.0.1:{port}", interval_ms=5, mem_stats=False, udp_packet_size=60)
        engine = engine_with(t=4)

        def take() -> Snapshot:
            return snapshot.take(engine)

        nursery.start_soon(push, config, Lines("", config, ()), take, Log("b", said.append))
        with trio.fail_after(5):
            first = [await receiver.recv(1000) for _ in range(2)]
            second = [await receiver.recv(1000) for _ in range(2)]
        nursery.cancel_scope.cancel()
    assert b"".join(first) == (
        b"topic.t.message_count:4|c\ntopic.t.message_bytes:20|c\ntopic.t.depth:4|g\ntopic.t.backend_depth:0|g\n"
    )
    assert b"topic.t.message_count:0|c\n" in b"".join(second)
    assert said == []


async def test_a_statsd_that_has_no_address_is_told_once_and_tried_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    tried: list[float] = []

    async def refuse(*_arguments: object, **_keywords: object) -> list[object]:
        tried.append(trio.current_time())
        raise OSError("no such host")

    monkeypatch.setattr("broker.stats.statsd.trio.socket.getaddrinfo", refuse)
    config = StatsdConfig(address="nowhere:8125", interval_ms=60_000)
    engine = engine_with(t=1)
    lines = Lines("", config, ())
    nursery.start_soon(push, config, lines, lambda: snapshot.take(engine), Log("b", said.append))
    await trio.sleep(200)
    nursery.cancel_scope.cancel()
    assert tried == [60, 120, 180]
    assert len(said) == 1
    assert "statsd cannot be reached address=nowhere:8125" in said[0]
