"""Publishers of MQTT that are moved between real brokers: who follows goes in order, who does not stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from operator import itemgetter
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
import trio

from srtm.client.distributor import DistributorClient
from srtm.cluster.cluster_file import BrokerPlace
from srtm.cluster.supervisor import cluster
from srtm.net.address import parse_peer
from srtm.topics.file import read_topic_file
from tests.system.moving import Fleet, move
from tests.system.running import topic_file
from tests.system.test_mqtt import PATIENCE_S, connected

paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
PacketTypes = pytest.importorskip("paho.mqtt.packettypes").PacketTypes
Properties = pytest.importorskip("paho.mqtt.properties").Properties
mqtt = pytest.importorskip("srtm.mqtt")
pytestmark = pytest.mark.slow

BETWEEN_S = 0.2  # messages of a client that waits to be sent away
NAMES = ["roads/a", "heat/a"]


class MqttFleet(Fleet):
    """Publishers of MQTT, a thread each. They send one after the other, each after its answer."""

    async def publish(self, publisher_id: str) -> None:
        publisher = mqtt.Publisher("roads", publisher_id, distributor=self.distributor)
        await trio.to_thread.run_sync(publisher.__enter__)
        try:
            while not self.over:
                body = self.numbering.next_body(publisher_id)
                await trio.to_thread.run_sync(publisher.publish, "roads", body)
                self.note(publisher_id, publisher.address)
                await trio.sleep(0.01)  # no faster than the topic says
        finally:
            await trio.to_thread.run_sync(publisher.__exit__, None, None, None)


async def test_moves_lose_nothing_and_keep_each_publishers_order(tmp_path: Path) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        await move(tmp_path, MqttFleet, publishers=4, moves=4, mqtt=True)


def following(place: BrokerPlace, publisher_id: str, told: Queue[Any]) -> Any:
    """A client of 5.0 that says that it follows, and puts what ends its connection into ``told``."""
    assert place.mqtt_address is not None
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, publisher_id, protocol=paho.MQTTv5, reconnect_on_failure=False
    )
    client.on_disconnect = lambda _client, _data, flags, reason, said: (
        told.put((reason.value, said.ServerReference)) if flags.is_disconnect_packet_from_server else None
    )
    wishes = Properties(PacketTypes.CONNECT)
    wishes.UserProperty = ("srtm-follow", "1")
    client.connect(*parse_peer("address", place.mqtt_address), properties=wishes)
    client.loop_start()
    return client


async def end_of(client: Any, names: list[str], told: Queue[Any]) -> Any:
    """What ends the connection of a client that goes on publishing: a broker that does not know yet who belongs to it
    looks at the next message."""
    while told.empty():
        for name in names:
            client.publish(name, b"x", qos=1)
        with suppress(Empty):
            return await trio.to_thread.run_sync(told.get, True, BETWEEN_S)
    return told.get_nowait()


async def test_only_who_follows_is_sent_away_and_others_are_served_where_they_are(tmp_path: Path) -> None:
    file = topic_file(tmp_path, "roads", publishers=2, rate_each=100, rate=600)
    told: Queue[Any] = Queue()
    with trio.fail_after(3 * PATIENCE_S):
        async with (
            cluster(brokers=2, mcap=1200, data=tmp_path / "data", mqtt=True) as running,
            DistributorClient(running.distributor) as client,
        ):
            await client.create_or_change_topic("roads", read_topic_file(file))
            ids: list[str] = (await client.publishers("roads"))["ids"]
            home = {(await client.assignment("roads", one)).mqtt_address for one in ids}
            [elsewhere] = [place for place in running.brokers if place.mqtt_address not in home]
            follower = following(elsewhere, ids[1], told)
            with connected(elsewhere, ids[0]) as stock:
                await trio.to_thread.run_sync(stock.publish("roads", b"x", qos=1).wait_for_publish, PATIENCE_S)
                assert await end_of(follower, ["roads"], told) == (0x9C, *home)
                sent = stock.publish("roads", b"x", qos=1)
                await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                assert stock.is_connected()
            follower.loop_stop()


def names_of(folder: Path, name: str, publishers: list[str], rate_each: float) -> Path:
    """The file of a topic that has the MQTT names ``NAME/#``."""
    file = folder / f"{name}.toml"
    file.write_text(
        f'name = "{name}"\nrate = {2 * rate_each * len(publishers)}\nburst = 50\n'
        "[slo]\npercentile = 99\nlatency_ms = 50\n"
        f'[mqtt]\nfilters = ["{name}/#"]\n'
        f"[[publishers]]\nids = {publishers}\nrates = {[rate_each] * len(publishers)}\n"
    )
    return file


async def test_a_client_of_two_topics_follows_to_one_broker_and_is_left_there(tmp_path: Path) -> None:
    cars: Queue[Any] = Queue()
    bikes: Queue[Any] = Queue()
    with trio.fail_after(3 * PATIENCE_S):
        async with (
            cluster(brokers=2, mcap=500, data=tmp_path / "data", mqtt=True) as running,
            DistributorClient(running.distributor) as client,
        ):
            ids = ["one", "two"]  # one at each broker
            await client.create_or_change_topic("roads", read_topic_file(names_of(tmp_path, "roads", ids, 300)))
            at = dict(zip(*itemgetter("ids", "brokers")(await client.publishers("roads")), strict=True))
            [car] = [one for one in ids if at[one] == "broker-2"]
            # Of two again one goes to each broker, and the first one to the first, if nothing else counts.
            await client.create_or_change_topic("heat", read_topic_file(names_of(tmp_path, "heat", [car, "bike"], 150)))
            first, second = sorted(running.brokers, key=lambda place: place.name)
            async with publishing(first, car, cars) as follower:
                assert await end_of(follower, NAMES, cars) == (0x9C, second.mqtt_address)
            async with publishing(second, car, cars), publishing(second, "bike", bikes) as bike:
                # Who came later is told where its place in heat is: so long car would have been told, too.
                assert await end_of(bike, NAMES, bikes) == (0x9C, first.mqtt_address)
                assert cars.empty()


@asynccontextmanager
async def publishing(place: BrokerPlace, publisher_id: str, told: Queue[Any]) -> AsyncIterator[Any]:
    """A following client at ``place`` has published to both topics."""
    client = following(place, publisher_id, told)
    try:
        for name in NAMES:
            await trio.to_thread.run_sync(client.publish(name, b"x", qos=1).wait_for_publish, PATIENCE_S)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
