"""What each client must do, for those that Python can drive: a client is a way to connect, and these are asked of it.

Clients in other languages ask the same of themselves, by the same names.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tests.interop.outcome import Outcome
from tests.interop.processes import report

WAIT_S = 10.0
MEMBERS, SHARED = 2, 20


@dataclass(frozen=True)
class Message:
    """One that came."""

    name: str
    payload: bytes
    qos: int
    retained: bool


@dataclass(frozen=True)
class Wish:
    """How to connect. ``transport``: tcp, tls or ws. ``clean``: without the session that was there, and keeping none.
    ``will``: name and payload, QoS 1."""

    client_id: str
    transport: str = "tcp"
    clean: bool = True
    will: tuple[str, bytes] | None = None

    @property
    def port(self) -> int:
        return int(os.environ[{"tcp": "MQTT_PORT", "tls": "MQTTS_PORT", "ws": "MQTT_WS_PORT"}[self.transport]])


HOST = "127.0.0.1"


def authority() -> str:
    """The file of the certificate that signed the broker's."""
    return os.environ["MQTT_CA"]


class Connection(Protocol):
    """One client that is connected. ``resumed``: whether the broker had its session; None: the client does not say."""

    resumed: bool | None

    async def subscribe(self, pattern: str, qos: int) -> None:
        """Returns when the broker has answered."""

    async def publish(self, name: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        """Returns when the broker has acknowledged it."""

    async def next(self) -> Message:
        """The next message that came."""

    async def close(self) -> None:
        """Leave with a DISCONNECT."""

    async def die(self) -> None:
        """Leave without one."""


Connect = Callable[[Wish], Awaitable[Connection]]
Check = Callable[["Client"], Awaitable[None]]


class Client:
    """One client library, whose names of topics and ids begin with its own."""

    def __init__(self, name: str, connect: Connect) -> None:
        self.name, self._connect = name, connect

    async def connect(self, part: str, **wish: Any) -> Connection:
        return await self._connect(Wish(f"{self.name}-{part}", **wish))

    @asynccontextmanager
    async def connected(self, part: str, **wish: Any) -> Any:
        connection = await self.connect(part, **wish)
        try:
            yield connection
        finally:
            await connection.close()


async def round_trip(client: Client, transport: str, qos: int) -> None:
    name = f"{client.name}/{transport}/{qos}"
    async with client.connected(f"{transport}{qos}", transport=transport) as connection:
        await connection.subscribe(name, qos)
        for number in range(10):
            await connection.publish(name, b"%d" % number, qos)
        came = [await connection.next() for _ in range(10)]
    assert came == [Message(name, b"%d" % number, qos, False) for number in range(10)], came


async def will(client: Client) -> None:
    name = f"{client.name}/will"
    async with client.connected("heir") as heir:
        await heir.subscribe(name, 1)
        dying = await client.connect("dying", will=(name, b"gone"))
        await dying.die()
        assert (await heir.next()).payload == b"gone"


async def retained(client: Client) -> None:
    name = f"{client.name}/retained"
    async with client.connected("teller") as teller:
        await teller.publish(name, b"kept", 1, retain=True)
        async with client.connected("late") as late:
            await late.subscribe(name, 1)
            assert await late.next() == Message(name, b"kept", 1, True)
        await teller.publish(name, b"", 1, retain=True)


async def session(client: Client) -> None:
    name = f"{client.name}/session"
    first = await client.connect("sleeper", clean=False)
    await first.subscribe(name, 1)
    await first.close()
    async with client.connected("waker") as waker:
        await waker.publish(name, b"while away", 1)
    again = await client.connect("sleeper", clean=False)
    assert again.resumed is not False, "the broker did not have the session"
    assert (await again.next()).payload == b"while away"
    await again.close()
    await (await client.connect("sleeper")).close()  # ends the session


async def shared(client: Client) -> None:
    name = f"{client.name}/shared"
    members = [await client.connect(f"member{number}") for number in range(MEMBERS)]
    came: list[bytes] = []
    all_there = asyncio.Event()

    async def listen(member: Connection) -> None:
        while True:
            came.append((await member.next()).payload)
            if len(came) == SHARED:
                all_there.set()

    for member in members:
        await member.subscribe(f"$share/{client.name}/{name}", 1)
    listening = [asyncio.create_task(listen(member)) for member in members]
    async with client.connected("sharer") as sharer:
        for number in range(SHARED):
            await sharer.publish(name, b"%d" % number, 1)
        await all_there.wait()
    for task in listening:
        task.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    for member in members:
        await member.close()
    assert sorted(came, key=int) == [b"%d" % number for number in range(SHARED)], came


CHECKS: dict[str, Check] = {
    **{f"QoS {qos}": functools.partial(round_trip, transport="tcp", qos=qos) for qos in range(3)},
    "will": will,
    "retained": retained,
    "session resumed": session,
    "shared subscription": shared,
    "TLS": functools.partial(round_trip, transport="tls", qos=1),
    "WebSocket": functools.partial(round_trip, transport="ws", qos=1),
}


async def outcome(client: Client, name: str, check: Check) -> Outcome:
    started, why = time.monotonic(), ""
    try:
        async with asyncio.timeout(WAIT_S):
            await check(client)
    except Exception as error:  # noqa: BLE001 - the outcome of a check, whatever it is
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
    return Outcome(name, not why, time.monotonic() - started, why)


def run(name: str, connect: Connect, *, without: tuple[str, ...] = ()) -> None:
    """Ask all but ``without``, which the client does not have; tell ``__main__``."""
    logging.disable(logging.CRITICAL)

    async def ask() -> list[Outcome]:
        client = Client(name, connect)
        return [await outcome(client, title, check) for title, check in CHECKS.items() if title not in without]

    report(asyncio.run(ask()))
