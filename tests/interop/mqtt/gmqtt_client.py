"""gmqtt, MQTT 5.0. It has no WebSocket."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import gmqtt

from tests.interop.mqtt.checks import HOST, Message, Wish, authority, run

_KEPT_S = 600


class GmqttConnection:
    def __init__(self, wish: Wish) -> None:
        self.resumed: bool | None = None
        self._wish = wish
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._subscribed = asyncio.Event()
        dying = None if wish.will is None else gmqtt.Message(*wish.will, qos=1)
        kept = {} if wish.clean else {"session_expiry_interval": _KEPT_S}
        self._client = gmqtt.Client(wish.client_id, clean_session=wish.clean, will_message=dying, **kept)
        self._client.set_config({"reconnect_retries": 0})
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._subscribed.set()

    def _on_connect(self, _client: object, flags: int, *_: object) -> None:
        self.resumed = bool(flags & 1)

    def _on_message(self, _client: object, name: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        self._messages.put_nowait(Message(name, bytes(payload), qos, bool(properties["retain"])))
        return 0

    async def open(self) -> None:
        tls = ssl.create_default_context(cafile=authority()) if self._wish.transport == "tls" else False
        await self._client.connect(HOST, self._wish.port, ssl=tls)

    async def subscribe(self, pattern: str, qos: int) -> None:
        self._subscribed.clear()
        self._client.subscribe(pattern, qos=qos)
        await self._subscribed.wait()

    async def publish(self, name: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self._client.publish(name, payload, qos=qos, retain=retain)
        if qos:
            await self._client._wait_qos_queue_drained()

    async def next(self) -> Message:
        return await self._messages.get()

    async def close(self) -> None:
        await self._client.disconnect()

    async def die(self) -> None:
        self._client._connection._transport.abort()


async def connect(wish: Wish) -> GmqttConnection:
    connection = GmqttConnection(wish)
    await connection.open()
    return connection


if __name__ == "__main__":
    run("gmqtt", connect, without=("WebSocket",))
