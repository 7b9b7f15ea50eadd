"""MQTT clients of a managed topic, through real processes: one bucket with NSQ's, acknowledged when accepted."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from bench.harness.cluster_runs.assigned_traffic import settled
from bench.harness.cluster_runs.trace import fetch_trace
from srtm.client.distributor import DistributorClient
from srtm.cluster.cluster_file import BrokerPlace, read_cluster
from srtm.cluster.supervisor import Cluster, cluster
from srtm.net.address import parse_peer
from srtm.token_bucket.bucket import conforms_actual, conforms_due
from srtm.units import to_micro
from tests.support.ports import pick_addresses
from tests.system.running import publish_all, receiving, srtm, topic_file

mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytestmark = pytest.mark.slow

PATIENCE_S = 30.0
CERTIFICATE = Path(__file__).resolve().parents[1] / "support" / "localhost.pem"  # with its key
RATE, BURST = 220.0, 50  # of ``topic_file``
SENSORS, EACH = 10, 30


@contextmanager
def connected(place: BrokerPlace, client_id: str) -> Iterator[Any]:
    """A client of 3.1.1 whose callbacks run in a thread."""
    assert place.mqtt_address is not None
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id)
    client.max_inflight_messages_set(EACH)
    with running_client(client, place.mqtt_address):
        yield client


@contextmanager
def running_client(client: Any, address: str) -> Iterator[None]:
    client.connect(*parse_peer("address", address))
    client.loop_start()
    try:
        yield
    finally:
        client.disconnect()
        client.loop_stop()


class Heard:
    """What came to a subscriber."""

    def __init__(self, client: Any, pattern: str = "#") -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._changed, self._subscribed = threading.Condition(), threading.Event()
        client.on_message = self._note
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.subscribe(pattern, qos=1)
        assert self._subscribed.wait(PATIENCE_S)

    def _note(self, _client: object, _data: object, message: Any) -> None:
        with self._changed:
            self.messages.append((message.topic, message.payload))
            self._changed.notify()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, PATIENCE_S), len(self.messages)


def publish_bursts(place: BrokerPlace, ids: list[str], heard: Heard) -> int:
    """All send at once. Returns how many messages had been heard when the last was acknowledged."""
    clients = [connected(place, one) for one in ids]
    opened = [client.__enter__() for client in clients]
    try:
        sent = [
            client.publish(f"plant/{one}/heat", f"{one} {number}", qos=1)
            for number in range(EACH)
            for one, client in zip(ids, opened, strict=True)
        ]
        for one in sent:
            one.wait_for_publish(PATIENCE_S)
        return len(heard.messages)
    finally:
        for client in clients:
            client.__exit__(None, None, None)


async def submitted(running: Cluster, folder: Path, groups: str = "[]") -> list[str]:
    """A topic that owns ``plant/+/heat``, in force; returns the ids of its publishers."""
    more = f'[mqtt]\nfilters = ["plant/+/heat"]\ngroups = {groups}'
    file = topic_file(folder, "heat", publishers=SENSORS, rate_each=20, rate=RATE, more=more)
    ended = await srtm("topic", "submit", str(file), distributor=running.distributor)
    assert (ended.returncode, ended.stderr) == (0, b"")
    async with DistributorClient(running.distributor) as client:
        await settled(client, "heat", within_s=PATIENCE_S)
        assigned = await client.publishers("heat")
    return list(assigned["ids"])


async def test_mqtt_and_nsq_share_a_topic_its_bucket_and_its_promise(tmp_path: Path) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=1, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            [place] = running.brokers
            ids = await submitted(running, tmp_path)
            async with receiving("heat", running.distributor) as received:
                with connected(place, "listener") as listener:
                    heard = await trio.to_thread.run_sync(Heard, listener)
                    early = await trio.to_thread.run_sync(publish_bursts, place, ids, heard)
                    assert early < SENSORS * EACH, "they were acknowledged when accepted, not when released"
                    await publish_all("heat", ids[0], running.distributor, [b"by NSQ"])
                    await trio.to_thread.run_sync(heard.wait_for, SENSORS * EACH + 1)
                bodies = {one: [f"{one} {number}".encode() for number in range(EACH)] for one in ids}
                await received.wait_for([b"by NSQ", *(body for each in bodies.values() for body in each)])
            for one in ids:
                assert [body for name, body in heard.messages if name == f"plant/{one}/heat"] == bodies[one]
            assert ("heat", b"by NSQ") in heard.messages
            trace = await fetch_trace(place.http_address, "heat")
            assert set(trace.publishers) == set(ids)
            rate, burst = to_micro(RATE, "rate"), to_micro(BURST, "burst")
            assert conforms_due(trace.due_ns.tolist(), rate, burst) is None
            assert conforms_actual(trace.released_ns.tolist(), rate, burst, int(trace.lateness_ns.max())) is None
            async with DistributorClient(running.distributor) as client:
                view = await client.topic("heat")
                while view["promise"] == "unknown":  # until the broker's next report
                    await trio.sleep(0.1)
                    view = await client.topic("heat")
            assert view["promise"] == "broken", "a burst of 300 through 50 tokens waits for longer than 50 ms"
            assert view["mqtt"] == {"filters": ["plant/+/heat"], "name": "", "v3_excess": "delay", "groups": []}


async def mqtt_json(running: Cluster, *arguments: str) -> Any:
    ended = await srtm("mqtt", *arguments, "--json", "-", distributor=running.distributor)
    assert (ended.returncode, ended.stderr) == (0, b""), ended
    return json.loads(ended.stdout)["result"]


async def test_an_operator_lists_sessions_and_retained_messages_of_all_brokers_and_ends_them(tmp_path: Path) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            first, second = running.brokers
            ended = threading.Event()
            with connected(first, "listener") as listener, connected(second, "other") as other:
                await trio.to_thread.run_sync(Heard, listener)
                for one, name in ((listener, "a/1"), (other, "b/1")):
                    sent = one.publish(name, "kept", qos=1, retain=True)
                    await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                listed = await mqtt_json(running, "sessions")
                assert [(one["client_id"], one["broker"]) for one in listed] == [
                    ("listener", "broker-1"),
                    ("other", "broker-2"),
                ]
                [shown] = await mqtt_json(running, "session", "listener")
                assert (shown["filters"], shown["version"], shown["connected"]) == (["#"], "3.1.1", True)
                listed = await mqtt_json(running, "retained", "+/1", "--clear")
                assert {one["name"] for one in listed} == {"a/1", "b/1"}
                while await mqtt_json(running, "retained"):  # until each broker has heard of the other's removals
                    pass
                other.on_disconnect = lambda *_: ended.set()
                assert await mqtt_json(running, "kick", "other") == {"client": "other", "brokers": ["broker-2"]}
                assert await trio.to_thread.run_sync(ended.wait, PATIENCE_S)
            unknown = await srtm("mqtt", "session", "nobody", distributor=running.distributor)
            assert (unknown.returncode, unknown.stderr) == (2, b"srtm: client 'nobody' is not known here\n")


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_client_in_websocket_meets_one_without_it(tmp_path: Path, encrypted: bool) -> None:
    ws, wss = pick_addresses(2)
    options = ["--mqtt-ws-address", ws, "--mqtt-wss-address", wss]
    options += ["--tls-cert", str(CERTIFICATE), "--tls-key", str(CERTIFICATE)]
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=1, mcap=600, data=tmp_path / "data", mqtt=True, broker_options=options) as running:
            [place] = running.brokers
            with connected(place, "listener") as listener:
                heard = await trio.to_thread.run_sync(Heard, listener)
                browser = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="browser", transport="websockets")
                if encrypted:
                    browser.tls_set(ca_certs=str(CERTIFICATE))
                    browser.tls_insecure_set(True)
                with running_client(browser, wss if encrypted else ws):
                    echoed = await trio.to_thread.run_sync(Heard, browser)
                    sent = browser.publish("from/browser", b"x" * 100_000, qos=1)
                    await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                    await trio.to_thread.run_sync(heard.wait_for, 1)
                    await trio.to_thread.run_sync(echoed.wait_for, 1)
            assert heard.messages == echoed.messages == [("from/browser", b"x" * 100_000)]


async def test_a_broker_that_is_killed_comes_back_with_filters_and_on_its_mqtt_port(tmp_path: Path) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=1, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            ids = await submitted(running, tmp_path)
        async with cluster(brokers=1, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            [place] = running.brokers
            last = read_cluster(tmp_path / "data")
            assert last is not None
            assert [one.mqtt_address for one in last.brokers] == [place.mqtt_address]
            with connected(place, "listener") as listener:
                heard = await trio.to_thread.run_sync(Heard, listener)
                await trio.to_thread.run_sync(publish_bursts, place, ids[:1], heard)
                await trio.to_thread.run_sync(heard.wait_for, EACH)
            trace = await fetch_trace(place.http_address, "heat")
            assert len(trace.arrival_ns) == EACH


@contextmanager
def kept(place: BrokerPlace, client_id: str) -> Iterator[tuple[Any, queue.Queue[Any]]]:
    """A client of 3.1.1 whose session outlives its connection, and what comes: its CONNACK's flag, then payloads."""
    assert place.mqtt_address is not None
    came: queue.Queue[Any] = queue.Queue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    client.on_connect = lambda _client, _data, flags, *_: came.put(flags.session_present)
    client.on_message = lambda _client, _data, message: came.put(message.payload)
    client.on_subscribe = lambda *_: came.put("subscribed")
    with running_client(client, place.mqtt_address):
        yield client, came


async def first_of(came: queue.Queue[Any], count: int) -> list[Any]:
    return [await trio.to_thread.run_sync(lambda: came.get(timeout=PATIENCE_S)) for _ in range(count)]


async def test_a_broker_that_is_drained_hands_its_sessions_and_what_waits_for_them_over(tmp_path: Path) -> None:
    bodies = [str(number).encode() for number in range(5)]
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            first, second = running.brokers
            with kept(first, "away") as (client, came):
                client.subscribe("#", qos=1)
                assert await first_of(came, 2) == [False, "subscribed"]
            with kept(first, "here") as (client, came), connected(first, "sensor") as sensor:
                client.subscribe("#", qos=1)
                assert await first_of(came, 2) == [False, "subscribed"]
                for body in bodies:
                    sent = sensor.publish("a", body, qos=1)
                    await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                drained = await srtm("drain", first.name, distributor=running.distributor)
                assert (drained.returncode, drained.stdout) == (0, f"{first.name} is drained and stops\n".encode())
            with kept(second, "here") as (_, came):
                assert await first_of(came, 1) == [True]
            with kept(second, "away") as (_, came):
                assert await first_of(came, 6) == [True, *bodies]


async def test_a_declared_group_collects_at_each_broker_without_members_over_a_restart_for_a_member_anywhere(
    tmp_path: Path,
) -> None:
    group, bodies = "$share/workers/plant/+/heat", [str(number).encode() for number in range(5)]
    with trio.fail_after(3 * PATIENCE_S):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            [one, *_] = await submitted(running, tmp_path, groups=f'["{group}"]')
            with connected(running.brokers[0], one) as sensor:
                for body in bodies:
                    sent = sensor.publish(f"plant/{one}/heat", body, qos=1)
                    await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data", mqtt=True) as running:
            with connected(running.brokers[1], "worker") as worker:
                heard = await trio.to_thread.run_sync(Heard, worker, group)
                await trio.to_thread.run_sync(heard.wait_for, len(bodies))
            assert [body for _, body in heard.messages] == bodies
