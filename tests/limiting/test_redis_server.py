"""CL.THROTTLE over a stream: pipelined, with tokens, and what ends a connection."""

from __future__ import annotations

import trio
import trio.testing
from trio.testing import memory_stream_pair

from limiting.redis_server import RedisServer
from srtm.net.tokens import Tokens


async def talk(parts: list[bytes], tokens: Tokens | None = None) -> bytes:
    server = RedisServer(1_000, tokens)
    ours, theirs = memory_stream_pair()
    said = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        for part in parts:
            await ours.send_all(part)
        await ours.send_eof()
        async for chunk in ours:
            said += chunk
    return bytes(said)


async def test_pipelined_commands_are_answered_in_order() -> None:
    command = b"CL.THROTTLE user:1 1 1 60\r\n"
    assert await talk([command * 3 + b"PING\r\n"]) == (
        b"*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:120\r\n"
        b"*5\r\n:1\r\n:2\r\n:0\r\n:60\r\n:120\r\n+PONG\r\n"
    )


async def test_more_answers_than_wait_at_once_are_all_sent() -> None:
    assert await talk([b"PING\r\n" * 100_000]) == b"+PONG\r\n" * 100_000


async def test_a_token_comes_first() -> None:
    tokens = Tokens.parsed("tokens", "client c good\nbroker b other\n")
    said = await talk([b"PING\r\nAUTH other\r\nAUTH good\r\nPING\r\n"], tokens)
    assert [line[:6] for line in said.split(b"\r\n")] == [b"-NOAUT", b"-WRONG", b"+OK", b"+PONG", b""]


async def test_what_is_no_command_ends_the_connection() -> None:
    assert (await talk([b"*1\r\n$5000\r\n"])).startswith(b"-ERR Protocol error")
    assert await talk([b"QUIT\r\n"]) == b"+OK\r\n"


async def test_a_slow_reader_gets_every_answer_over_a_real_socket() -> None:
    server, count = RedisServer(1_000, None), 100_000
    ours, theirs = (trio.SocketStream(each) for each in trio.socket.socketpair())
    said = bytearray()

    async def ask() -> None:
        await ours.send_all(b"PING\r\n" * count)
        await ours.send_eof()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, theirs)
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            async with ours:
                async for chunk in ours:
                    said += chunk
    assert said == b"+PONG\r\n" * count


async def test_a_client_that_goes_away_ends_its_connection_alone() -> None:
    server = RedisServer(1_000, None)
    ours, theirs = (trio.SocketStream(each) for each in trio.socket.socketpair())
    await ours.send_all(b"PING\r\n")
    await ours.aclose()
    with trio.fail_after(10):
        await server.serve(theirs)
