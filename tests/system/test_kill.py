"""SIGKILL in the middle of traffic: what died comes back with its share, and the others never notice."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.cluster_file import BrokerPlace
from srtm.cluster.supervisor import Cluster, cluster
from srtm.errors import Unavailable
from srtm.topics.file import read_topic_file
from tests.system.running import Traffic, receiving, topic_file

pytestmark = pytest.mark.slow


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[Cluster]:
    with trio.fail_after(55):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data") as running:
            yield running


async def restarted(running: Cluster, broker: BrokerPlace) -> None:
    """Until it runs as another process than it did. It need not be ready yet."""
    while next(one.pid for one in running.brokers if one.name == broker.name) in (None, broker.pid):
        await running.wait_change()


async def shares(client: DistributorClient) -> dict[str, Json]:
    return {place["broker"]: place for place in (await client.topic("roads"))["brokers"]}


async def test_a_killed_broker_is_restarted_its_publishers_reconnect_and_it_has_its_share_back(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    file = topic_file(tmp_path, "roads", publishers=10, rate_each=90, rate=1000)
    async with DistributorClient(two_brokers.distributor) as client, trio.open_nursery() as nursery:
        await client.create_or_change_topic("roads", read_topic_file(file))
        assigned = await client.publishers("roads")
        ids: list[str] = assigned["ids"]
        victim, other = two_brokers.brokers
        theirs = [one for one, broker in zip(ids, assigned["brokers"], strict=True) if broker == victim.name]
        others = [one for one in ids if one not in theirs]
        assert theirs
        assert others
        before = await shares(client)
        traffic = Traffic("roads", client)
        async with receiving("roads", two_brokers.distributor) as received:
            for one in ids:
                nursery.start_soon(traffic.run, one)
            await traffic.wait_for_more(ids, 10)

            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            await restarted(two_brokers, victim)
            await traffic.wait_for_more(ids, 20)

            after = await shares(client)
            while after[victim.name]["applied_version"] < after[victim.name]["share_version"]:
                await trio.sleep(0.1)
                after = await shares(client)
            nursery.cancel_scope.cancel()
    assert [place.pid for place in two_brokers.brokers if place.name == other.name] == [other.pid]
    for name in (victim.name, other.name):
        assert (after[name]["rate"], after[name]["burst"]) == (before[name]["rate"], before[name]["burst"])
    lost = {body for one in others for body in traffic.accepted[one]} - received.bodies.keys()
    assert len(lost) <= len(others)  # only what was on its way when the test ended
    assert all(received.bodies[body] == 1 for one in others for body in traffic.accepted[one] if body not in lost)


async def test_messages_flow_on_while_the_distributor_hangs_and_when_it_is_killed(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    file = topic_file(tmp_path, "roads", publishers=4, rate_each=50, rate=400)
    async with DistributorClient(two_brokers.distributor) as client, trio.open_nursery() as nursery:
        await client.create_or_change_topic("roads", read_topic_file(file))
        ids: list[str] = (await client.publishers("roads"))["ids"]
        before = await shares(client)
        traffic = Traffic("roads", client)
        async with receiving("roads", two_brokers.distributor):
            for one in ids:
                nursery.start_soon(traffic.run, one)
            await traffic.wait_for_more(ids, 5)
            assert two_brokers.distributor_pid is not None
            os.kill(two_brokers.distributor_pid, signal.SIGSTOP)
            await traffic.wait_for_more(ids, 20)
            os.kill(two_brokers.distributor_pid, signal.SIGKILL)
            await traffic.wait_for_more(ids, 20)
            nursery.cancel_scope.cancel()
    async with DistributorClient(two_brokers.distributor) as client:
        after = await eventually_shares(client)
    assert {name: place["rate"] for name, place in after.items()} == {n: p["rate"] for n, p in before.items()}


async def eventually_shares(client: DistributorClient) -> dict[str, Json]:
    while True:
        try:
            return await shares(client)
        except Unavailable:
            await trio.sleep(0.05)
