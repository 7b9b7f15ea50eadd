"""Brokers of a few lines that speak NATS, MQTT 3.1.1 and Redis Pub/Sub, for tests of the load generator: the protocols
as they are written down, none of our drivers. What they send goes out torn at every few bytes.
"""

import json
import struct
from contextlib import asynccontextmanager
from functools import partial

import trio

TEAR = 7  # bytes a write: no unit of any of the protocols fits


class TinyPeer:
    def __init__(self):
        self.bodies = []  # of what was published, in order
        self.acknowledged = 0  # by subscribers
        self.names = []
        self.subscribers = {}  # stream: its lock, as publishers' tasks write to it in turns

    async def send(self, stream, data):
        async with self.subscribers.get(stream) or trio.Lock():
            for at in range(0, len(data), TEAR):
                await stream.send_all(data[at : at + TEAR])

    async def deliver(self, body, frame):
        self.bodies.append(body)
        for subscriber in list(self.subscribers):
            await self.send(subscriber, frame)


class Input:
    def __init__(self, stream):
        self.stream, self.buffer = stream, b""

    async def exactly(self, count):
        while len(self.buffer) < count:
            more = await self.stream.receive_some()
            if not more:
                raise trio.ClosedResourceError
            self.buffer += more
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    async def line(self):
        line = b""
        while not line.endswith(b"\r\n"):
            line += await self.exactly(1)
        return line[:-2]


async def nats(peer, stream):
    source = Input(stream)
    await peer.send(stream, b'INFO {"server_id":"tiny","max_payload":1048576}\r\n')
    while True:
        command, _, rest = (await source.line()).decode().partition(" ")
        if command == "CONNECT":
            options = json.loads(rest)
            assert options["verbose"] is False
            peer.names.append(options["name"])
        elif command == "SUB":
            peer.subscribers[stream] = trio.Lock()
        elif command == "PING":
            await peer.send(stream, b"PONG\r\nPING\r\n")
        elif command == "PUB":
            subject, size = rest.split(" ")
            body = await source.exactly(int(size))
            assert await source.line() == b""
            await peer.deliver(body, f"MSG {subject} 1 {size}\r\n".encode() + body + b"\r\n")
        elif command == "PONG":
            peer.acknowledged += 1
        else:
            raise AssertionError(command)


async def redis(peer, stream):
    source = Input(stream)
    while True:
        count = await source.line()
        assert count[:1] == b"*"
        words = []
        for _ in range(int(count[1:])):
            size = await source.line()
            assert size[:1] == b"$"
            words.append(await source.exactly(int(size[1:])))
            assert await source.line() == b""
        match words:
            case [b"PING"]:
                await peer.send(stream, b"+PONG\r\n")
            case [b"SUBSCRIBE", channel]:
                await peer.send(stream, b"*3\r\n" + bulk(b"subscribe") + bulk(channel) + b":1\r\n")
                peer.subscribers[stream] = trio.Lock()
            case [b"PUBLISH", channel, body]:
                await peer.deliver(body, b"*3\r\n" + bulk(b"message") + bulk(channel) + bulk(body))
                await peer.send(stream, f":{len(peer.subscribers)}\r\n".encode())
            case other:
                raise AssertionError(other)


def bulk(data):
    return f"${len(data)}\r\n".encode() + data + b"\r\n"


async def mqtt(peer, stream, qos):
    source = Input(stream)
    while True:
        kind, rest = await packet(source)
        if kind == 0x10:
            assert rest[:10] == b"\0\4MQTT\4\2\xff\xff"
            peer.names.append(rest[12:].decode())
            await peer.send(stream, b"\x20\2\0\0")
        elif kind == 0x82:
            assert rest[-1] == qos
            await peer.send(stream, b"\x90\3" + rest[:2] + bytes([qos]))
            peer.subscribers[stream] = trio.Lock()
        elif kind == (0x70 if qos == 2 else 0x40):
            peer.acknowledged += 1
        elif kind == 0x50:
            await peer.send(stream, b"\x62\2" + rest)
        elif kind == 0x62:
            await peer.send(stream, b"\x70\2" + rest)
        else:
            assert kind == 0x30 | qos << 1
            topic_ends = 2 + struct.unpack_from(">H", rest)[0]
            body = rest[topic_ends + (2 if qos else 0) :]
            await peer.deliver(body, bytes([kind]) + length(len(rest)) + rest)
            if qos:
                await peer.send(stream, bytes([0x30 + 0x10 * qos, 2]) + rest[topic_ends : topic_ends + 2])


async def packet(source):
    kind, rest, shift = (await source.exactly(1))[0], 0, 0
    while True:
        byte = (await source.exactly(1))[0]
        rest |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return kind, await source.exactly(rest)


def length(count):
    return bytes([count]) if count < 0x80 else bytes([0x80 | count & 0x7F, count >> 7])


SPEAK = {("nats", 0): nats, ("redis", 0): redis, **{("mqtt", qos): partial(mqtt, qos=qos) for qos in (0, 1, 2)}}


@asynccontextmanager
async def tiny_peer(protocol, qos):
    """(the broker, its address)"""
    peer = TinyPeer()

    async def serve(stream):
        try:
            await SPEAK[protocol, qos](peer, stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the generator closed it
        finally:
            peer.subscribers.pop(stream, None)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield peer, f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
