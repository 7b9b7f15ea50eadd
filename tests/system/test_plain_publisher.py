"""A plain NSQ client that publishes where it does not belong: it cannot be told to move, is served there, and the
tokens come to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from srtm import protocol as wire
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import cluster
from srtm.topics.file import read_topic_file
from tests.system.running import receiving, topic_file

pytestmark = pytest.mark.slow


async def publish_as(publisher_id: str, address: str, rate: float) -> None:
    """Until cancelled; answers are read and thrown away, as are moves."""
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as nursery:
        await stream.send_all(wire.MAGIC + wire.identify({"client_id": publisher_id, "feature_negotiation": False}))
        nursery.start_soon(read_all, stream)
        while True:
            await stream.send_all(wire.pub("roads", b"from a plain client"))
            await trio.sleep(1 / rate)


async def read_all(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


async def until(client: DistributorClient, broker: str, *, astray: bool) -> Json:
    while True:
        view = await client.topic("roads")
        place = next((one for one in view["brokers"] if one["broker"] == broker), None)
        if bool(place and place["rate_astray"]) == astray:
            return place or {"rate": 0.0}
        await trio.sleep(0.2)


async def test_its_broker_gets_tokens_for_it_and_gives_them_back_when_it_has_gone(tmp_path: Path) -> None:
    file = topic_file(tmp_path, "roads", publishers=4, rate_each=50, rate=400)
    with trio.fail_after(120):
        async with (
            cluster(brokers=2, mcap=600, data=tmp_path / "data") as running,
            DistributorClient(running.distributor) as client,
            receiving("roads", running.distributor) as received,
            trio.open_nursery() as nursery,
        ):
            await client.create_or_change_topic("roads", read_topic_file(file))
            (home,) = {one["broker"] for one in (await client.topic("roads"))["brokers"]}
            other = next(one for one in running.brokers if one.name != home)
            nursery.start_soon(publish_as, "roads-1", other.tcp_address, 40.0)
            there = await until(client, other.name, astray=True)
            await received.wait_for([b"from a plain client"])
            assert set(received.brokers) == {other.tcp_address}
            at_home = next(one for one in (await client.topic("roads"))["brokers"] if one["broker"] == home)
            assert 15 < there["rate_astray"] <= 50
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.move_on_after(60):
                gone = await until(client, other.name, astray=False)
    assert at_home["rate"] < 400
    assert gone["rate"] == 0.0
