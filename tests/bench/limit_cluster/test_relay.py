"""A relay passes bytes on with its delay, and ends those connections that are cut."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio

from bench.limit_cluster.relay import Relay


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


@pytest.fixture
async def relayed(nursery: trio.Nursery) -> tuple[Relay, int]:
    """A relay in front of a server that sends everything back, and the relay's port."""
    (server,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, echo, [server])
    relay = Relay(server.socket.getsockname()[1], 0.05)
    (front,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(partial(trio.serve_listeners, relay.answer, [front]))
    return relay, front.socket.getsockname()[1]


async def opened(streams: AsyncExitStack, port: int, first: bytes) -> trio.SocketStream:
    stream = await streams.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
    await stream.send_all(first)
    return stream


async def test_only_connections_that_begin_with_the_text_are_cut(relayed: tuple[Relay, int]) -> None:
    relay, port = relayed
    async with AsyncExitStack() as streams:
        with trio.fail_after(10):
            begun = trio.current_time()
            a, b = await opened(streams, port, b"of a"), await opened(streams, port, b"of b")
            assert [await one.receive_some() for one in (a, b)] == [b"of a", b"of b"]
            assert trio.current_time() - begun >= 0.1, "there and back"
            relay.cut(b"of a")
            assert await a.receive_some() == b""
            await b.send_all(b"of a, but later")
            assert await b.receive_some() == b"of a, but later"
            again = await opened(streams, port, b"of a again")
            assert await again.receive_some() == b""
            relay.cut()
            assert await b.receive_some() == b""
            relay.heal()
            healed = await opened(streams, port, b"of a")
            assert await healed.receive_some() == b"of a"
