"""paho-mqtt for Python, MQTT 3.1.1: its callbacks run in a thread of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.interop.mqtt.checks import HOST, WAIT_S, Message, Wish, authority, run


class PahoConnection:
    def __init__(self, wish: Wish) -> None:
        self.resumed: bool | None = None
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._connected, self._subscribed = asyncio.Event(), asyncio.Event()
        transport: Any = "websockets" if wish.transport == "ws" else "tcp"
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, wish.client_id, clean_session=wish.clean, transport=transport
        )
        if wish.transport == "tls":
            self._client.tls_set(ca_certs=authority())
        if wish.will is not None:
            self._client.will_set(*wish.will, qos=1)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def _on_connect(self, _client: object, _data: object, flags: Any, *_: object) -> None:
        self.resumed = bool(flags.session_present)
        self._loop.call_soon_threadsafe(self._connected.set)

    def _on_subscribe(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._subscribed.set)

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        came = Message(message.topic, bytes(message.payload), message.qos, message.retain)
        self._loop.call_soon_threadsafe(self._messages.put_nowait, came)

    async def open(self, port: int) -> None:
        await asyncio.to_thread(self._client.connect, HOST, port)
        self._client.loop_start()
        await self._connected.wait()

    async def subscribe(self, pattern: str, qos: int) -> None:
        self._subscribed.clear()
        self._client.subscribe(pattern, qos)
        await self._subscribed.wait()

    async def publish(self, name: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        sent = self._client.publish(name, payload, qos, retain)
        await asyncio.to_thread(sent.wait_for_publish, WAIT_S)

    async def next(self) -> Message:
        return await self._messages.get()

    async def close(self) -> None:
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)

    async def die(self) -> None:
        self._client.on_disconnect = None
        await asyncio.to_thread(self._client.loop_stop)
        socket = self._client.socket()
        assert socket is not None
        socket.close()


async def connect(wish: Wish) -> PahoConnection:
    connection = PahoConnection(wish)
    await connection.open(wish.port)
    return connection


if __name__ == "__main__":
    run("paho-mqtt", connect)
