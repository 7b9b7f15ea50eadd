"""The store itself: Redis, Valkey, or a cluster of them, asked by scripts."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import trio
from coredis import Redis, RedisCluster
from coredis.commands import Script
from coredis.connection import TCPLocation
from coredis.exceptions import ConnectionError, RedisError
from coredis.retry import NoRetryPolicy

from limiting.store.address import SCHEMES, checked_store
from srtm.errors import Unavailable
from srtm.net.tls_trust import ca_file, trouble, trusting

_PORT = 6379
BUDGET_S = 0.18  # of a call, so that an answer without the store leaves within 200 ms
SILENT_AFTER_S = 5  # a node that does not tell for so long counts as gone

# Tells that a node lives, and asks for how many do and for the key of grants, which the first one has made.
_NODES = """
local time = redis.call('TIME')
redis.call('SET', KEYS[2], ARGV[2], 'NX')
redis.call('ZADD', KEYS[1], time[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1] - tonumber(ARGV[3]))
return {redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[2])}
"""


class RedisStore:
    """A store at an address. Use ``opened``."""

    def __init__(self, client: Redis[bytes] | RedisCluster[bytes], place: str) -> None:
        self._place = place
        self._name = secrets.token_hex(8)
        self._client = client
        text = files("limiting.store").joinpath("decide.lua").read_text(encoding="utf-8")
        self._decide: Script[bytes] = client.register_script(text)
        self._nodes: Script[bytes] = client.register_script(_NODES)

    async def decide(self, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> list[Any]:
        answer: list[Any] = await self._within(lambda: self._decide(keys, arguments))
        return answer

    async def forget(self, keys: Sequence[str]) -> None:
        await self._within(lambda: self._client.delete(keys))

    async def nodes(self) -> tuple[int, bytes]:
        keys = ["srtm:{nodes}", "srtm:{nodes}:key"]
        count, key = await self._within(
            lambda: self._nodes(keys, [self._name, secrets.token_bytes(32), SILENT_AFTER_S])
        )
        return count, key

    async def _within(self, call: Any) -> Any:
        try:
            with trio.fail_after(BUDGET_S):
                return await call()
        except trio.TooSlowError:
            raise Unavailable(f"store {self._place}: no answer within {BUDGET_S * 1000:.0f} ms") from None
        except (ConnectionError, OSError) as error:
            raise Unavailable(f"store {self._place}: {trouble(f'//{self._place}', error)}") from error
        except RedisError as error:
            raise Unavailable(f"store {self._place}: {error}") from error


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    """Open a store. It need not be there yet, unless it is a cluster. Raises BadInput, Unavailable."""
    parts = urlsplit(checked_store(url))
    address = urlunsplit(parts._replace(scheme=SCHEMES[parts.scheme]))
    settings: Any = {"retry_policy": NoRetryPolicy(), "verify_version": False}
    if SCHEMES[parts.scheme] == "rediss":
        settings["ssl_context"] = trusting(ca_file())  # the library's own does not check whose certificate it is
    client: Redis[bytes] | RedisCluster[bytes]
    if parts.scheme.endswith("+cluster"):
        first = TCPLocation(parts.hostname or "", parts.port or _PORT)
        client = RedisCluster.from_url(address, startup_nodes=[first], **settings)
    else:
        client = Redis.from_url(address, **settings)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except (RedisError, OSError) as error:
            raise Unavailable(f"store {parts.hostname}: {error}") from error
        yield RedisStore(client, parts.hostname or "")
