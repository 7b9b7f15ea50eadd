"""The load generator through Python, against a broker of a few lines: what it counts is what happened."""

import json
import struct

import msgspec
import pytest
import trio

from bench.harness.load.run import run_plan
from bench.harness.load.workload import Plan, Subscriber, joined, modelled
from bench.harness.results.results import histogram_ms, merged
from srtm._native import LoadGen
from srtm.errors import Unavailable
from tests.support.tiny_nsqd import tiny_nsqd

pytestmark = pytest.mark.slow  # real sockets, real time


def plan(address, publishers=None, **changes):
    fields = {
        "duration_s": 0.4,
        "warmup_s": 0.1,
        "drain_s": 5.0,
        "slo_ms": 5_000.0,
    }  # lateness of this machine is no finding here
    return Plan(
        topic="load",
        targets=[address],
        publishers=publishers or modelled([0] * 10, 20.0),
        subscribers=[Subscriber(target=0)],
        **{**fields, **changes},
    )


def intended_by_publisher(broker):
    """Instants in order of publication, of each."""
    intended = {}
    for _, body in broker.published:
        publisher, at_ns = struct.unpack_from(">I", body, 8)[0], struct.unpack_from(">q", body, 24)[0]
        intended.setdefault(publisher, []).append(at_ns)
    return [intended[publisher] for publisher in sorted(intended)]


async def test_what_is_sent_arrives_and_counts_once():
    async with tiny_nsqd() as (broker, address):
        result = await run_plan(plan(address))
    assert result.sent == result.offered == result.acknowledged == result.received > 0
    assert (result.lost, result.duplicates, result.refused, result.foreign, result.errors) == (0, 0, 0, 0, {})
    assert 0 < result.p50_ms <= result.p95_ms <= result.p99_ms <= result.p999_ms <= result.max_ms
    assert result.valid, result.reasons
    measured = [body for _, body in broker.published if struct.unpack_from(">I", body, 12) == (1,)]
    assert len(measured) == result.sent < len(broker.published)


async def test_publishers_say_who_they_are_and_subscribers_ask_for_unbuffered_output():
    async with tiny_nsqd() as (broker, address):
        await run_plan(plan(address, modelled([0] * 3, 20.0, id_prefix="sensor-")))
    subscriber, *publishers = broker.identities
    assert sorted(identity["client_id"] for identity in publishers) == ["sensor-0", "sensor-1", "sensor-2"]
    assert (subscriber["output_buffer_size"], subscriber["feature_negotiation"]) == (-1, True)
    # each message says on whose connection it came
    assert all(f"sensor-{struct.unpack_from('>I', body, 8)[0]}" == name for name, body in broker.published)


async def test_heartbeats_are_answered_by_both_sides():
    async with tiny_nsqd() as (broker, address):
        broker.heartbeat = True
        await run_plan(plan(address, modelled([0] * 3, 20.0)))
    assert broker.nops == 4


async def test_the_histograms_hold_every_message_and_agree_with_the_percentiles():
    async with tiny_nsqd() as (_, address):
        result = await run_plan(plan(address))
    latency = merged([result.histograms.latency])
    assert latency.get_total_count() == result.received
    assert histogram_ms(latency, 50) == pytest.approx(result.p50_ms, rel=2e-3)
    assert merged([result.histograms.lateness]).get_total_count() == result.sent
    assert merged(target.histogram for target in result.targets).get_total_count() == result.received


async def test_members_of_a_group_share_their_intended_instants():
    async with tiny_nsqd() as (broker, address):
        await run_plan(plan(address, modelled([0] * 6, 20.0, group_size=3)))
    intended = [set(instants) for instants in intended_by_publisher(broker)]
    assert intended[0] == intended[1] == intended[2]
    assert intended[3] == intended[4] == intended[5]
    assert not intended[0] & intended[3]


async def test_members_of_a_spread_group_are_late_by_their_offsets_and_by_nothing_else():
    async with tiny_nsqd() as (broker, address):
        await run_plan(plan(address, modelled([0] * 3, 20.0, group_size=3, noise_ns=6_000_000)))
    first, *others = intended_by_publisher(broker)
    for offset_ns, later in zip((3_000_000, 6_000_000), others, strict=True):
        assert set(later) <= {at_ns + offset_ns for at_ns in first}
        assert len(later) >= len(first) - 1  # the last may have fallen behind the end


async def test_the_same_seed_sends_at_the_same_instants_and_another_at_others():
    async def sent(seed):
        async with tiny_nsqd() as (broker, address):
            fleet = joined([modelled([0] * 4, 20.0, group_size=2, noise_ns=900), modelled([0], 9.0, id_prefix="b-")])
            await run_plan(plan(address, fleet, seed=seed))
        instants = intended_by_publisher(broker)
        first_ns = min(one[0] for one in instants)
        return [[at_ns - first_ns for at_ns in one] for one in instants]

    assert await sent(5) == await sent(5) != await sent(6)


async def test_a_recording_is_replayed_at_its_instants():
    instants_ns = [[150_000_000, 150_000_001, 400_000_000], [250_000_000]]
    replayed = msgspec.structs.replace(modelled([0, 0], 1.0, process="trace"), instants_ns=instants_ns)
    async with tiny_nsqd() as (broker, address):
        result = await run_plan(plan(address, replayed))
    sent = intended_by_publisher(broker)
    start_ns = sent[0][0] - 150_000_000
    assert [[at_ns - start_ns for at_ns in one] for one in sent] == instants_ns
    assert result.sent == 4
    assert [one.count for one in result.timeline] == [4]


async def test_the_timeline_adds_up_to_the_whole():
    async with tiny_nsqd() as (_, address):
        result = await run_plan(plan(address, duration_s=1.2))
    assert [(one.start_s, one.length_s) for one in result.timeline] == [(0.0, 1.0), (1.0, pytest.approx(0.2))]
    total = merged(one.histogram for one in result.timeline)
    assert total.get_total_count() == result.received
    assert total.encode() == merged([result.histograms.latency]).encode()
    assert max(one.max_ms for one in result.timeline) == result.max_ms


async def test_refusals_are_counted_apart_from_losses():
    async with tiny_nsqd() as (broker, address):
        broker.refuse_every = 5
        result = await run_plan(plan(address, warmup_s=0.0))
    refused = -(-len(broker.published) // 5)
    assert (result.refused, result.errors) == (refused, {"E_RATE_LIMITED": refused})
    assert (result.received, result.lost) == (result.sent - refused, 0)
    assert result.error_texts == ["E_RATE_LIMITED PUB retry after 3 ms"] * min(3, refused)
    assert result.valid, result.reasons


async def test_progress_is_shown_while_the_run_goes_on():
    seen = []
    async with tiny_nsqd() as (_, address):
        result = await run_plan(plan(address, duration_s=0.8), seen.append)
    assert seen, "no progress in 0.9 s"
    assert all(now.received <= result.received and now.offered <= result.offered for now in seen)
    assert [now.elapsed_s for now in seen] == sorted(now.elapsed_s for now in seen)


async def test_cancelling_ends_the_run_at_once():
    async with tiny_nsqd() as (broker, address):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_plan, plan(address, duration_s=3600.0))
            with trio.fail_after(5):
                await broker.first_publish.wait()
            nursery.cancel_scope.cancel()
        # the connections close when the generator's threads end
        with trio.fail_after(5):
            await broker.subscriber_left.wait()


async def test_a_broker_that_is_not_there_is_named():
    async with tiny_nsqd() as (_, address):
        pass
    with pytest.raises(Unavailable, match=f"{address}: Connection refused"):
        await run_plan(plan(address))


async def test_a_row_is_flat():
    async with tiny_nsqd() as (_, address):
        row = (await run_plan(plan(address))).row("one")
    assert {"name", "brokers", "offered", "sent", "received", "lost", "duplicates", "valid"} <= row.keys()
    assert {"p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms", "lateness_p99_ms", "ack_p99_ms", "errors"} <= row.keys()
    assert all(isinstance(value, str | int | float) for value in row.values())


def test_the_extension_refuses_an_unknown_field():
    fields = msgspec.to_builtins(plan("127.0.0.1:1"))
    with pytest.raises(ValueError, match="unknown field `colour`"):
        LoadGen(json.dumps({**fields, "colour": "red"}).encode())


def test_a_result_before_the_end_is_an_error():
    generator = LoadGen(msgspec.json.encode(plan("127.0.0.1:1")))
    assert json.loads(generator.progress())["phase"] == "idle"
    assert generator.wait(0) is False
    with pytest.raises(RuntimeError, match="has not ended"):
        generator.result()
