"""Publishers that are moved back and forth between two real brokers while they send: what the tests of both protocols
share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import trio

from srtm.client.distributor import DistributorClient
from srtm.client.subscriber import Subscriber
from srtm.cluster.supervisor import Cluster, cluster
from srtm.topics.file import read_topic_file
from tests.system.numbering import Numbering
from tests.system.running import topic_file

PATIENCE_S = 30


class Fleet(ABC):
    """``at``: where each publisher sent its last message, HOST:PORT. ``moves``: how often that was not where it had
    been."""

    def __init__(self, running: Cluster, client: DistributorClient, numbering: Numbering) -> None:
        self.at: dict[str, str | None] = {}
        self.moves = 0
        self.over = False
        self.distributor, self.client, self.numbering = running.distributor, client, numbering

    @abstractmethod
    async def publish(self, publisher_id: str) -> None:
        """Send until ``over``."""

    def note(self, publisher_id: str, address: str | None) -> None:
        self.moves += self.at.get(publisher_id, address) != address
        self.at[publisher_id] = address
        self.numbering.tell()

    async def until_home(self, addresses: Mapping[str, str | None]) -> None:
        """Until all publish to the brokers that they are assigned to, which may change meanwhile."""
        for _ in range(PATIENCE_S):
            found = await self.client.publishers("roads")
            home = {one: addresses[broker] for one, broker in zip(found["ids"], found["brokers"], strict=True)}
            with trio.move_on_after(1):
                while self.at != home:
                    await self.numbering.changed()
                return
        raise AssertionError(f"publishers are at {self.at}, and should be at {home}")


async def move(folder: Path, kind: type[Fleet], *, publishers: int, moves: int, mqtt: bool = False) -> None:
    """Concentrated, the topic is on one broker; spread over all, on two: each change moves half of the publishers. All
    that they send comes, once by NSQ and at least once by MQTT, and each publisher's in order."""
    documents = [
        read_topic_file(
            topic_file(folder, "roads", publishers=publishers, rate_each=100, rate=1200, more=f'placement = "{one}"')
        )
        for one in ("lb", "srtm")
    ]
    async with (
        cluster(brokers=2, mcap=1200, data=folder / "data", mqtt=mqtt) as running,
        DistributorClient(running.distributor) as client,
    ):
        await client.create_or_change_topic("roads", documents[1])
        ids: list[str] = (await client.publishers("roads"))["ids"]
        addresses = {broker.name: broker.mqtt_address if mqtt else broker.tcp_address for broker in running.brokers}
        numbering = Numbering(once=not mqtt)
        fleet = kind(running, client, numbering)
        async with Subscriber("roads", "all", distributor=client) as subscriber, trio.open_nursery() as nursery:
            nursery.start_soon(numbering.take_all, subscriber)
            # Brokers that get publishers later make the channel first, once it is known. Before it is there, what comes
            # by MQTT is for nobody.
            while "all" not in (await client.lookup("roads")).channels:
                await trio.lowlevel.checkpoint()
            async with trio.open_nursery() as publishing:
                for one in ids:
                    publishing.start_soon(fleet.publish, one)
                for number in range(moves):
                    await client.create_or_change_topic("roads", documents[number % 2])
                    await fleet.until_home(addresses)
                fleet.over = True
            await numbering.until_all_came()
            nursery.cancel_scope.cancel()
    assert fleet.moves >= moves
    assert numbering.out_of_order == {}
