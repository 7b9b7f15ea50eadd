"""A broker of a few lines for tests of the load generator: NSQ as it is written down, none of our codecs.

One channel; every message goes to every subscriber.
"""

import json
import struct
from contextlib import asynccontextmanager

import trio


class TinyNsqd:
    def __init__(self):
        self.identities = []
        self.published = []  # (client id, body)
        self.finished = 0
        self.nops = 0
        self.refuse_every = 0  # 0: never
        self.heartbeat = False  # send one after each IDENTIFY
        self.first_publish = trio.Event()
        self.subscriber_left = trio.Event()
        self._subscribers = {}  # stream: its lock, as publishers' tasks write to it in turns

    async def serve(self, stream):
        """One connection, until the other side closes it."""
        reader = _Reader(stream)
        try:
            assert await reader.exactly(4) == b"  V2"
            identity = {}
            while line := await reader.line():
                command, *words = line.decode().split(" ")
                match command:
                    case "IDENTIFY":
                        identity = json.loads(await reader.sized())
                        self.identities.append(identity)
                        await _send(stream, 0, b'{"max_rdy_count":2500}')
                        if self.heartbeat:
                            await _send(stream, 0, b"_heartbeat_")
                    case "SUB":
                        await _send(stream, 0, b"OK")
                        self._subscribers[stream] = trio.Lock()
                    case "PUB":
                        await self._publish(stream, identity, [await reader.sized()])
                    case "MPUB":
                        await self._publish(stream, identity, list(_bodies(await reader.sized())))
                    case "FIN":
                        self.finished += 1
                    case "NOP":
                        self.nops += 1
                    case "RDY":
                        pass
                    case other:
                        raise AssertionError(f"{other} {words}")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the generator closed it
        finally:
            if self._subscribers.pop(stream, None):
                self.subscriber_left.set()

    async def _publish(self, stream, identity, bodies):
        number = len(self.published)
        self.published += [(identity["client_id"], body) for body in bodies]
        self.first_publish.set()
        if self.refuse_every and number % self.refuse_every == 0:
            await _send(stream, 1, b"E_RATE_LIMITED PUB retry after 3 ms")
            return
        await _send(stream, 0, b"OK")
        for i, body in enumerate(bodies):
            message = struct.pack(">qH16s", 0, 1, f"{number + i:016x}".encode()) + body
            for subscriber, lock in list(self._subscribers.items()):
                async with lock:
                    await _send(subscriber, 2, message)


class _Reader:
    def __init__(self, stream):
        self.stream = stream
        self.buffer = b""

    async def exactly(self, count):
        while len(self.buffer) < count:
            if not (data := await self.stream.receive_some(1 << 16)):
                raise trio.BrokenResourceError("closed")
            self.buffer += data
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    async def line(self):
        while b"\n" not in self.buffer:
            if not (data := await self.stream.receive_some(1 << 16)):
                return b""
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    async def sized(self):
        (size,) = struct.unpack(">i", await self.exactly(4))
        return await self.exactly(size)


def _bodies(mpub):
    (count,) = struct.unpack_from(">i", mpub)
    at = 4
    for _ in range(count):
        (size,) = struct.unpack_from(">i", mpub, at)
        yield mpub[at + 4 : at + 4 + size]
        at += 4 + size


async def _send(stream, kind, data):
    await stream.send_all(struct.pack(">ii", len(data) + 4, kind) + data)


@asynccontextmanager
async def tiny_nsqd():
    """(broker, HOST:PORT), on loopback for as long as the block lasts."""
    broker = TinyNsqd()
    async with trio.open_nursery() as nursery:
        (listener, *_) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, broker.serve, [listener])
        yield broker, f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()
