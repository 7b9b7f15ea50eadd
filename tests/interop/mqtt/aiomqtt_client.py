"""aiomqtt, MQTT 5.0."""

from __future__ import annotations

import ssl

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.interop.mqtt.checks import HOST, WAIT_S, Message, Wish, authority, run

_KEPT_S = 600


class AiomqttConnection:
    def __init__(self, wish: Wish) -> None:
        self.resumed: bool | None = None
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0 if wish.clean else _KEPT_S
        self._client = aiomqtt.Client(
            HOST,
            wish.port,
            identifier=wish.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=wish.clean,
            properties=properties,
            transport="websockets" if wish.transport == "ws" else "tcp",
            tls_context=ssl.create_default_context(cafile=authority()) if wish.transport == "tls" else None,
            will=None if wish.will is None else aiomqtt.Will(*wish.will, qos=1),
            timeout=WAIT_S,
        )

    async def open(self) -> None:
        await self._client.__aenter__()

    async def subscribe(self, pattern: str, qos: int) -> None:
        await self._client.subscribe(pattern, qos=qos)

    async def publish(self, name: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        await self._client.publish(name, payload, qos=qos, retain=retain)

    async def next(self) -> Message:
        came = await anext(self._client.messages)
        return Message(str(came.topic), came.payload, came.qos, came.retain)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def die(self) -> None:
        self._client._client._sock_close()


async def connect(wish: Wish) -> AiomqttConnection:
    connection = AiomqttConnection(wish)
    await connection.open()
    return connection


if __name__ == "__main__":
    run("aiomqtt", connect)
