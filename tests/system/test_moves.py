"""Publishers that are moved back and forth between real brokers under load: every message arrives once, and each
publisher's in the order in which it was sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber
from srtm.cluster.supervisor import cluster
from srtm.topics.file import read_topic_file
from tests.system.numbering import Numbering
from tests.system.running import topic_file

pytestmark = pytest.mark.slow

MOVES = 20


class Fleet:
    """Each publisher sends as it is numbered, and waits for no answer before the next."""

    def __init__(self, client: DistributorClient, numbering: Numbering) -> None:
        self.at: dict[str, str] = {}
        self.moves = 0
        self.over = False
        self._client, self._numbering = client, numbering

    async def publish(self, publisher_id: str) -> None:
        async with (
            Publisher("roads", publisher_id, distributor=self._client) as publisher,
            trio.open_nursery() as nursery,
        ):
            while not self.over:
                nursery.start_soon(publisher.publish, self._numbering.next_body(publisher_id))
                if publisher.address is not None:
                    self.moves += self.at.get(publisher_id, publisher.address) != publisher.address
                    self.at[publisher_id] = publisher.address
                self._numbering.tell()
                await trio.sleep(0.01)

    async def until_at(self, home: dict[str, str]) -> None:
        while self.at != home:
            await self._numbering.changed()


async def test_twenty_moves_under_load_lose_and_double_nothing_and_keep_each_publishers_order(tmp_path: Path) -> None:
    """Concentrated, the topic is on one broker; spread over all, on two: each change moves half of the publishers."""
    documents = [
        read_topic_file(
            topic_file(tmp_path, "roads", publishers=6, rate_each=100, rate=1200, more=f'placement = "{one}"')
        )
        for one in ("lb", "srtm")
    ]
    with trio.fail_after(150):
        async with (
            cluster(brokers=2, mcap=1200, data=tmp_path / "data") as running,
            DistributorClient(running.distributor) as client,
        ):
            await client.create_or_change_topic("roads", documents[1])
            ids: list[str] = (await client.publishers("roads"))["ids"]
            addresses = {broker.name: broker.tcp_address for broker in running.brokers}
            numbering = Numbering()
            fleet = Fleet(client, numbering)
            async with Subscriber("roads", "all", distributor=client) as subscriber, trio.open_nursery() as nursery:
                nursery.start_soon(numbering.take_all, subscriber)
                async with trio.open_nursery() as publishing:
                    for one in ids:
                        publishing.start_soon(fleet.publish, one)
                    for number in range(MOVES):
                        await client.create_or_change_topic("roads", documents[number % 2])
                        found = await client.publishers("roads")
                        home = {
                            name: addresses[broker] for name, broker in zip(found["ids"], found["brokers"], strict=True)
                        }
                        await fleet.until_at(home)
                    fleet.over = True
                await numbering.until_all_came()
                nursery.cancel_scope.cancel()
    assert fleet.moves >= MOVES
    assert numbering.out_of_order == {}
