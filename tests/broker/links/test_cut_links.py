"""Two engines, and a link between them that is cut again and again: each message comes once, in order."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from broker import events, snapshot
from broker.config import EngineConfig
from broker.links.consuming_brokers import ConsumingBrokers
from broker.links.keeper import LinkKeeper
from srtm._native import Engine
from srtm.control import LinkRequest
from srtm.log import Log

mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytestmark = pytest.mark.slow

CERTIFICATES = Path(__file__).parents[2] / "certificates"
TLS = {
    "tls_cert_pem": (CERTIFICATES / "distributor.pem").read_text(),
    "tls_key_pem": (CERTIFICATES / "distributor.key").read_text(),
    "tls_required": "true",
}
PATIENCE_S = 60.0
CUTS, BETWEEN = 20, 20  # messages between two cuts


def trusting_a() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATES / "distributor.pem")


class Relay:
    """What lies between the two brokers. ``cut`` breaks all connections."""

    def __init__(self, nursery: trio.Nursery, target: int) -> None:
        self._nursery = nursery
        self._target = target
        self._ways: set[trio.CancelScope] = set()

    async def listen(self) -> int:
        [listener] = await self._nursery.start(partial(trio.serve_tcp, self._carry, 0, host="127.0.0.1"))
        return int(listener.socket.getsockname()[1])

    def cut(self) -> None:
        for way in self._ways:
            way.cancel()

    async def _carry(self, near: trio.SocketStream) -> None:
        way = trio.CancelScope()
        self._ways.add(way)
        with way:
            far = await trio.open_tcp_stream("127.0.0.1", self._target)
            async with far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, near, far)
                nursery.start_soon(self._pass_on, far, near)

    async def _pass_on(self, source: trio.SocketStream, target: trio.SocketStream) -> None:
        try:
            async for part in source:
                await target.send_all(part)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(target)


class Asked:
    """HTTP to the broker of the publisher."""

    base_url = "http://a"

    def __init__(self, consuming: ConsumingBrokers) -> None:
        self._consuming = consuming

    async def request(self, _method: str, _target: str, body: bytes = b"", **_: float) -> tuple[int, bytes]:
        wanted = msgspec.json.decode(body, type=LinkRequest)
        return 200, msgspec.json.encode(self._consuming.register("b", wanted, trio.current_time()))

    async def aclose(self) -> None:
        pass


@contextmanager
def started(name: str, folder: Path, **settings: str) -> Iterator[tuple[Engine, int, int]]:
    """An engine, its NSQ port and its MQTT port."""
    (folder / name / "queue").mkdir(parents=True)
    ports_of = {"tcp_address": "127.0.0.1:0", "mqtt_address": "127.0.0.1:0"}
    config = EngineConfig(**ports_of, data_path=str(folder / name), **settings)  # type: ignore[arg-type]
    engine = Engine(msgspec.json.encode(config))
    ports = engine.start()
    assert ports[0] is not None
    assert ports[3] is not None
    try:
        yield engine, ports[0], ports[3]
    finally:
        engine.stop(5_000)


@contextmanager
def client_at(port: int, client_id: str) -> Iterator[Any]:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


async def follow(engine: Engine, keeper: LinkKeeper | None, consuming: ConsumingBrokers | None) -> None:
    """What ``broker.service`` does with the events of links."""
    while True:
        await trio.lowlevel.wait_readable(engine.fileno())
        for event in events.drain(engine):
            match event:
                case events.TopicCreated(topic) if consuming is not None:
                    consuming.note_topic(topic)
                case events.MqttInterestChanged() if keeper is not None:
                    keeper.note_interest()
                case events.LinkMarked(number, mark) if keeper is not None:
                    keeper.note_mark(number, mark)
                case events.LinkEnded(number, reason) if keeper is not None:
                    keeper.note_link_ended(number, reason)
                case _:
                    pass


@pytest.mark.parametrize("tls", [False, True], ids=["in clear", "inside TLS"])
async def test_a_link_that_is_cut_loses_nothing_gives_nothing_twice_and_keeps_the_order(
    tmp_path: Path, tls: bool
) -> None:
    of_a = TLS if tls else {}
    with (
        trio.fail_after(3 * PATIENCE_S),
        started("a", tmp_path, **of_a) as (a, a_nsq, a_mqtt),
        started("b", tmp_path) as b,
    ):
        async with trio.open_nursery() as nursery:
            relay = Relay(nursery, a_nsq)
            consuming = ConsumingBrokers(
                a,
                lambda _topic: None,
                tcp_address=f"127.0.0.1:{await relay.listen()}",
                default_topic="default",
                speaks_mqtt=True,
                ready=50,
                patience_s=PATIENCE_S,
                tls=tls,
            )
            asked: Any = Asked(consuming)
            keeper = LinkKeeper("b", b[0], lambda _address: asked, Log("b", lambda _line: None), trusting_a)
            nursery.start_soon(follow, a, None, consuming)
            nursery.start_soon(follow, b[0], keeper, None)
            keeper.follow({"a": "a"})
            nursery.start_soon(keeper.run)
            heard, ended = [], threading.Event()

            def note(_client: object, _data: object, message: Any) -> None:
                heard.append(int(message.payload))
                if heard[-1] == CUTS * BETWEEN - 1:
                    ended.set()

            with client_at(b[2], "subscriber") as subscriber, client_at(a_mqtt, "sensor") as sensor:
                subscribed = threading.Event()
                subscriber.on_message, subscriber.on_subscribe = note, lambda *_: subscribed.set()
                subscriber.subscribe("n/#", qos=1)
                assert await trio.to_thread.run_sync(subscribed.wait, PATIENCE_S)
                for number in range(CUTS * BETWEEN):
                    sent = sensor.publish("n/1", str(number), qos=1)
                    if number % BETWEEN == BETWEEN - 1:
                        relay.cut()
                        await trio.to_thread.run_sync(sent.wait_for_publish, PATIENCE_S)
                assert await trio.to_thread.run_sync(ended.wait, PATIENCE_S)
            assert heard == list(range(CUTS * BETWEEN))
            [way] = [way for way in snapshot.take(b[0]).links if way.topic == "default"]
            assert (way.origin, way.latency.since_start.total.count) == ("a", CUTS * BETWEEN), "each is judged once"
            nursery.cancel_scope.cancel()
