"""Two brokers that speak MQTT: what is published at one comes to subscribers of the other, whichever is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from srtm.cluster.cluster_file import BrokerPlace
from srtm.cluster.supervisor import Cluster, cluster
from srtm.net.address import parse_peer
from tests.support.other_process import ask_http, wait_until
from tests.system.running import publish_all, srtm, topic_file

mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
MORE = 50  # messages of each sensor between two kills


@contextmanager
def client_at(place: BrokerPlace, client_id: str) -> Iterator[Any]:
    """A client of 3.1.1 with a session that is kept, which connects again by itself."""
    assert place.mqtt_address is not None
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    client.reconnect_delay_set(1, 1)
    connected = threading.Event()
    client.on_connect = lambda _client, _data, _flags, reason, _properties: reason.is_failure or connected.set()
    client.connect(*parse_peer("address", place.mqtt_address))
    client.loop_start()
    try:
        assert connected.wait(PATIENCE_S)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


class Heard:
    """What came to a subscriber, of each sensor the numbers in order of arrival."""

    def __init__(self, client: Any, pattern: str) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self._changed, self._subscribed = threading.Condition(), threading.Event()
        client.on_message = self._note
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.subscribe(pattern, qos=1)
        assert self._subscribed.wait(PATIENCE_S)

    def _note(self, _client: object, _data: object, message: Any) -> None:
        sensor, number = message.payload.decode().split()
        with self._changed:
            self.numbers[sensor].append(int(number))
            self._changed.notify()

    def wait_for(self, sensors: Sequence[str], count: int) -> None:
        """Until all numbers below ``count`` have come from the first on that did: until then, the brokers may not have
        known each other."""

        def have_come() -> bool:
            heard = [self.numbers[sensor] for sensor in sensors]
            return all(numbers and set(range(numbers[0], count)) <= set(numbers) for numbers in heard)

        with self._changed:
            assert self._changed.wait_for(have_come, PATIENCE_S), {one: len(set(n)) for one, n in self.numbers.items()}


class Sensors:
    """Each sends numbers, one after the other is acknowledged."""

    def __init__(self, clients: dict[str, Any]) -> None:
        self.acknowledged = dict.fromkeys(clients, 0)
        self._changed, self._ends = threading.Condition(), threading.Event()
        self._threads = [threading.Thread(target=self._run, args=item) for item in clients.items()]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str, client: Any) -> None:
        """Waits for the acknowledgement itself: paho's `wait_for_publish` raises where the connection has just ended,
        though it sends the message once it has another."""
        told = threading.Event()
        client.on_publish = lambda *_: told.set()
        while not self._ends.is_set():
            told.clear()
            client.publish(f"plant/{name}", f"{name} {self.acknowledged[name]}", qos=1)
            assert told.wait(PATIENCE_S), f"{name}: message {self.acknowledged[name]} was not acknowledged"
            with self._changed:
                self.acknowledged[name] += 1
                self._changed.notify()

    def wait_for_more(self, count: int) -> None:
        goals = {name: now + count for name, now in self.acknowledged.items()}

        def reached() -> bool:
            return all(self.acknowledged[name] >= goal for name, goal in goals.items())

        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE_S), f"acknowledged {self.acknowledged} of {goals}"

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


async def killed(running: Cluster, broker: BrokerPlace) -> BrokerPlace:
    """Kills a broker; returns it once it runs as another process."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    while True:
        now = next(one for one in running.brokers if one.name == broker.name)
        if now.pid not in (None, broker.pid):
            return now
        await running.wait_change()


async def test_nsq_and_mqtt_clients_of_one_broker_reach_subscribers_of_another(tmp_path: Path) -> None:
    with trio.fail_after(2 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            file = topic_file(tmp_path, "heat", publishers=2, rate_each=20, rate=200, more='[mqtt]\nfilters = ["h/+"]')
            ended = await srtm("topic", "submit", str(file), distributor=running.distributor)
            assert (ended.returncode, ended.stderr) == (0, b"")
            for home in running.brokers:
                with client_at(home, f"listener at {home.name}") as listener:
                    heard = await trio.to_thread.run_sync(Heard, listener, "#")
                    address = await publish_all("heat", "heat-1", running.distributor, [b"nsq 0", b"nsq 1"])
                    assert address in {place.tcp_address for place in running.brokers}
                    for place in running.brokers:
                        with client_at(place, "sensor") as sensor:
                            sent = sensor.publish("elsewhere", f"{place.name} 0", qos=1)
                            await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                    names = [place.name for place in running.brokers]
                    await trio.to_thread.run_sync(heard.wait_for, ["nsq"], 2)
                    await trio.to_thread.run_sync(heard.wait_for, names, 1)
                    assert heard.numbers == {"nsq": [0, 1]} | {name: [0] for name in names}, "each came once"


async def test_a_kill_of_either_broker_loses_nothing_acknowledged_and_keeps_the_order(tmp_path: Path) -> None:
    with trio.fail_after(4 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            origin, home = running.brokers
            names = ["s1", "s2", "s3"]
            with (
                client_at(home, "listener") as listener,
                client_at(origin, "s1") as s1,
                client_at(origin, "s2") as s2,
                client_at(origin, "s3") as s3,
            ):
                heard = await trio.to_thread.run_sync(Heard, listener, "plant/#")
                sensors = Sensors({"s1": s1, "s2": s2, "s3": s3})
                try:
                    await trio.to_thread.run_sync(heard.wait_for, names, 0)
                    await trio.to_thread.run_sync(sensors.wait_for_more, MORE)
                    home = await killed(running, home)
                    await trio.to_thread.run_sync(sensors.wait_for_more, MORE)
                    origin = await killed(running, origin)
                    await trio.to_thread.run_sync(sensors.wait_for_more, MORE)
                finally:
                    await trio.to_thread.run_sync(sensors.end)
                for name, count in sensors.acknowledged.items():
                    await trio.to_thread.run_sync(heard.wait_for, [name], count)
            for name in names:
                first = list(dict.fromkeys(heard.numbers[name]))
                assert first == sorted(first), f"{name}: the order is kept"


def retains(place: BrokerPlace) -> bool:
    _, port = parse_peer("address", place.http_address)
    return json.loads(ask_http(port, "GET", "/v1/mqtt/retained")[1]) != []


async def test_what_is_retained_at_one_broker_comes_to_new_subscribers_of_another(tmp_path: Path) -> None:
    with trio.fail_after(2 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            origin, home = running.brokers
            with client_at(origin, "sensor") as sensor, client_at(home, "early") as early:
                heard = await trio.to_thread.run_sync(Heard, early, "kept/#")
                count = 0
                while not heard.numbers["s"]:  # until the brokers know each other
                    sent = sensor.publish("kept/s", f"s {count}", qos=1, retain=True)
                    await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                    count += 1
                await trio.to_thread.run_sync(heard.wait_for, ["s"], count)
                await trio.to_thread.run_sync(wait_until, "it is retained there", partial(retains, home))
                with client_at(home, "late") as late:
                    later = await trio.to_thread.run_sync(Heard, late, "kept/#")
                    await trio.to_thread.run_sync(later.wait_for, ["s"], count)
                    assert later.numbers == {"s": [count - 1]}, "the latest alone"


async def test_a_group_with_members_at_both_brokers_gets_each_message_once(tmp_path: Path) -> None:
    with trio.fail_after(2 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            origin, home = running.brokers
            with client_at(origin, "sensor") as sensor, client_at(home, "far") as far:
                there = await trio.to_thread.run_sync(Heard, far, "$share/g/n/#")
                count = 0
                while not there.numbers["s"]:  # until the brokers know each other
                    sent = sensor.publish("n/s", f"s {count}", qos=1)
                    await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                    count += 1
                first = there.numbers["s"][0]
                await trio.to_thread.run_sync(there.wait_for, ["s"], count)
                with client_at(origin, "near") as near:
                    here = await trio.to_thread.run_sync(Heard, near, "$share/g/n/#")
                    for number in range(count, count + MORE):
                        sent = sensor.publish("n/s", f"s {number}", qos=1)
                        await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                    await trio.to_thread.run_sync(here.wait_for, ["s"], count + MORE)
            assert sorted(here.numbers["s"] + there.numbers["s"]) == list(range(first, count + MORE)), "each once"


def listens(place: BrokerPlace) -> bool:
    assert place.mqtt_address is not None
    try:
        socket.create_connection(parse_peer("address", place.mqtt_address), 1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def moving_client(place: BrokerPlace, heard: set[int], *, comes_back: bool = False) -> Iterator[None]:
    """A client that comes back once its connection has ended, or does not."""
    assert place.mqtt_address is not None
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, client_id="moving", clean_session=False, reconnect_on_failure=comes_back
    )
    subscribed, ends = threading.Event(), list[str]()

    client.on_connect = lambda *told: ends.append(f"CONNACK {told[3]}") or client.subscribe("plant/#", qos=1)
    client.on_disconnect = lambda *told: ends.append(f"end {told[3]}")
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _client, _data, message: heard.add(int(message.payload))
    client.connect(*parse_peer("address", place.mqtt_address))
    client.loop_start()
    try:
        assert subscribed.wait(PATIENCE_S), ends
        yield
    finally:
        client.disconnect()
        client.loop_stop()


async def test_a_session_follows_its_client_also_to_a_broker_that_was_killed_meanwhile(tmp_path: Path) -> None:
    heard: set[int] = set()
    with trio.fail_after(4 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            origin, home = running.brokers
            with client_at(origin, "sensor") as sensor:
                count = 0

                async def publish(times: int) -> None:
                    nonlocal count
                    for _ in range(times):
                        sent = sensor.publish("plant/s", str(count), qos=1)
                        await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                        count += 1

                def all_came() -> bool:
                    return heard.issuperset(range(first, count))

                with moving_client(home, heard):
                    while not heard:  # until the brokers know each other
                        await publish(1)
                first = min(heard)
                await publish(MORE)
                with moving_client(origin, heard):
                    await trio.to_thread.run_sync(wait_until, "all has followed it", all_came)
                await publish(MORE)
                home = await killed(running, home)
                await trio.to_thread.run_sync(wait_until, "it listens again", partial(listens, home))
                with moving_client(home, heard, comes_back=True):
                    await publish(1)
                    await trio.to_thread.run_sync(wait_until, "all has followed it back", all_came)
