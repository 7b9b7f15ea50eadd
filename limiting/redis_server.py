"""Serves CL.THROTTLE in the Redis protocol. The core reads and writes the bytes; this owns the sockets."""

from __future__ import annotations

import secrets

import trio

from limiting.listeners import receive_first, send_soon
from srtm._native import RespSession, Throttle
from srtm.limiting.limiter import system_clocks
from srtm.net.tokens import Scope, Tokens

_READ_BYTES = 64 << 10
_SCOPES: tuple[Scope, ...] = ("client",)


def too_many(why: str) -> bytes:
    """What a client is told that finds no place: as Redis says it, and why."""
    return f"-ERR max number of clients reached: {why}\r\n".encode()


class RedisServer:
    """Answers connections of Redis clients. ``max_keys``: beyond it keys share 1,024 buckets."""

    def __init__(self, max_keys: int, tokens: Tokens | None) -> None:
        self._throttle = Throttle(secrets.token_bytes(16), max_keys)
        self._tokens = tokens

    def sweep(self) -> None:
        """Forget some of the keys whose buckets are full."""
        self._throttle.sweep(4_096, system_clocks()[0])

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one connection until it ends."""
        session = RespSession(self._tokens is not None)
        try:
            received = await receive_first(stream, _READ_BYTES)
            while received:
                await self._answer(session, received, stream)
                received = b"" if session.is_closed else bytes(await stream.receive_some(_READ_BYTES))
        except trio.BrokenResourceError:
            return  # the client went away
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, session: RespSession, received: bytes, stream: trio.abc.Stream) -> None:
        while True:
            answers = session.feed(received, self._throttle, system_clocks()[0])
            token = session.token
            if token is not None:
                answers += session.authenticate(self._knows(token))
            if answers:
                await send_soon(stream, answers)
            received = b""
            if not session.has_more:
                return

    def _knows(self, token: str) -> bool:
        return self._tokens is not None and self._tokens.allows(token, _SCOPES)
