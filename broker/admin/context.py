"""What the HTTP routes need of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import trio

from broker.config import BrokerConfig, EngineConfig
from broker.links.consuming_brokers import ConsumingBrokers
from broker.nsqd.kept_buckets import KeptBuckets
from broker.sync.drain import Drain
from srtm.control import ContractNews, GdrlAnswer, GdrlMessage, Throttling
from srtm.log import Log, LogSettings
from srtm.net.tokens import Tokens

if TYPE_CHECKING:
    from srtm._native import Engine

_T = TypeVar("_T")
_MAX_LARGE = 2  # at one time: each takes memory, and they share one interpreter with the syncs


@dataclass(frozen=True, kw_only=True)
class AdminContext:
    """The engine, its settings, and calls into the service."""

    engine: Engine
    settings: EngineConfig
    config: BrokerConfig
    name: str
    incarnation: str
    start_wall_ns: int  # when the service started, unix time
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    tokens: Tokens | None  # None: no token is needed
    is_managed: Callable[[str], bool]  # whether a distributor sets this topic's limit
    buckets: KeptBuckets  # limits set by hand
    note_change: Callable[[], None]  # the list of topics has changed, perhaps without an event
    write_topics: Callable[[], Awaitable[None]]  # returns when the present list is on disk
    health: Callable[[], str]  # "OK", or "NOK - why"
    drain: Drain
    consuming: ConsumingBrokers  # other brokers whose MQTT subscribers get what is published here
    answer_gdrl: Callable[[GdrlMessage], GdrlAnswer]  # to a message of another broker
    take_contract_news: Callable[[ContractNews], object]  # of another broker
    gdrl_rounds: Callable[[], int]  # since the start
    gdrl_invalid_messages: Callable[[], int]  # offers, answers and credits that made no sense, since the start
    throttling: Callable[[], Throttling]  # of this process's processors
    log: Log
    log_settings: LogSettings
    lookup_addresses: Callable[[], Sequence[str]]  # of the nsqlookupds in use
    use_lookups: Callable[[Sequence[str]], None]  # raises BadInput
    _large: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(_MAX_LARGE))

    async def make_large(self, make: Callable[[], _T]) -> _T:
        """Make a large answer beside the event loop, in a thread: no sync of this broker waits for it.

        ``make`` reads the engine too. Read on the loop, many requests would hold it up, and each would keep in memory
        what it read while it waits for its turn. ``make`` may not stay within one call of C for long, which no other
        thread interrupts.
        """
        return await trio.to_thread.run_sync(make, limiter=self._large)


def tokens_of(config: BrokerConfig) -> Tokens | None:
    """The tokens that may use this broker's HTTP. None: no token is needed."""
    own = None if config.token is None else Tokens.of_one(config.token)
    if own is None or config.tokens is None:
        return own or config.tokens
    return config.tokens.joined(own)  # the list may have the same token, as a broker's
