"""The load generator in other tongues than NSQ's: what it counts is what happened."""

import re
import struct
from functools import partial

import msgspec
import pytest
import trio

from bench.harness.load.run import run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from srtm.errors import BadInput, Unavailable
from tests.support.tiny_peers import SPEAK, tiny_peer

pytestmark = pytest.mark.slow  # real sockets, real time


def plan(address, protocol, qos, **changes):
    asked = Plan(
        topic="load",
        targets=[address],
        publishers=modelled([0] * 10, 20.0, batch=2, id_prefix="sensor-"),
        subscribers=[Subscriber(target=0)],
        duration_s=0.4,
        warmup_s=0.1,
        slo_ms=5_000.0,  # lateness of this machine is no finding here
        protocol=protocol,
        qos=qos,
    )
    return msgspec.structs.replace(asked, **changes)


@pytest.mark.parametrize(("protocol", "qos"), SPEAK)
async def test_what_is_sent_arrives_and_counts_once_however_the_bytes_are_torn(protocol, qos):
    async with tiny_peer(protocol, qos) as (peer, address):
        result = await run_plan(plan(address, protocol, qos))
    assert result.sent == result.offered == result.received > 0
    assert (result.lost, result.duplicates, result.refused, result.foreign, result.errors) == (0, 0, 0, 0, {})
    assert result.valid, result.reasons
    assert all(len(body) == 100 for body in peer.bodies)
    assert sum(struct.unpack_from(">I", body, 12)[0] for body in peer.bodies) == result.sent < len(peer.bodies)


@pytest.mark.parametrize(("protocol", "qos"), SPEAK)
async def test_publishes_are_acknowledged_where_the_protocol_does(protocol, qos):
    async with tiny_peer(protocol, qos) as (peer, address):
        result = await run_plan(plan(address, protocol, qos))
    answered = (protocol, qos) in {("redis", 0), ("mqtt", 1), ("mqtt", 2)}
    assert result.acknowledged == (result.sent if answered else 0)
    assert (result.ack_p50_ms > 0) is answered
    if protocol == "mqtt":
        assert peer.acknowledged == (len(peer.bodies) if qos else 0)


NAMES = [*(f"sensor-{n}" for n in range(10)), "srtm-loadgen-subscriber-0"]


async def test_connections_say_who_they_are():
    async with tiny_peer("nats", 0) as (peer, address):
        await run_plan(plan(address, "nats", 0))
    assert sorted(peer.names) == NAMES


async def test_connections_say_who_they_are_and_no_two_of_any_run_the_same_where_a_broker_ends_the_earlier_one():
    async with tiny_peer("mqtt", 0) as (peer, address):
        for _ in range(2):
            await run_plan(plan(address, "mqtt", 0))
    assert sorted(re.sub(r"-[0-9a-f]{16}-\d+$", "", name) for name in peer.names) == sorted(2 * NAMES)
    assert len(set(peer.names)) == len(peer.names)


async def test_pings_are_answered_by_both_sides():
    async with tiny_peer("nats", 0) as (peer, address):
        await run_plan(plan(address, "nats", 0))
    assert peer.acknowledged == 11


@pytest.mark.parametrize(("protocol", "qos"), SPEAK)
async def test_every_subscriber_gets_a_copy_of_its_own(protocol, qos):
    two = [Subscriber(target=0, channel=channel) for channel in ("a", "b")]
    async with tiny_peer(protocol, qos) as (_, address):
        result = await run_plan(plan(address, protocol, qos, subscribers=two))
    assert result.received == 2 * result.sent > 0


@pytest.mark.parametrize(("protocol", "qos"), SPEAK)
async def test_a_run_against_something_else_is_refused_by_what_it_said(protocol, qos):
    async def web_server(stream):
        try:
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n" + b"x" * 100)
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            return  # the generator closed it

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, web_server, 0, host="127.0.0.1"))
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        with pytest.raises(Unavailable, match=rf"{address}: a (line|reply|packet)"):
            await run_plan(plan(address, protocol, qos))
        nursery.cancel_scope.cancel()


async def test_a_plan_that_the_protocol_cannot_say_is_refused():
    with pytest.raises(BadInput, match=r"qos: .1.: must be 0 or, with protocol mqtt, 1 or 2"):
        await run_plan(plan("127.0.0.1:1", "redis", 1))
    with pytest.raises(BadInput, match=r"topic: .a\..: must be words"):
        await run_plan(plan("127.0.0.1:1", "nats", 0, topic="a."))
