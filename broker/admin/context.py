"""What the HTTP routes of a broker need of it: the engine, its settings, and a few words on the service around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.config import BrokerConfig, EngineConfig
from broker.sync.drain import Drain
from srtm.control import GdrlAnswer, GdrlMessage, Throttling
from srtm.log import Threshold
from srtm.net.tokens import Tokens

if TYPE_CHECKING:
    from srtm._native import Engine


@dataclass(frozen=True, kw_only=True)
class AdminContext:
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
    tokens: Tokens | None  # None: everybody may
    is_managed: Callable[[str], bool]  # the distributor decides over this topic's limit
    note_change: Callable[[], None]  # something in the metadata file has changed, perhaps without an event
    write_topics: Callable[[], Awaitable[None]]  # returns when that file says what is so now
    health: Callable[[], str]  # "OK", or "NOK - why"
    drain: Drain
    answer_gdrl: Callable[[GdrlMessage], GdrlAnswer]  # to another broker that exchanges tokens with this one
    gdrl_rounds: Callable[[], int]  # in which this one asked another, since the start
    gdrl_nonsense: Callable[[], int]  # offers, answers and credits of others that made none, since the start
    throttling: Callable[[], Throttling]  # of this process's processors
    threshold: Threshold  # of the log
    lookup_addresses: Callable[[], Sequence[str]]  # of the nsqlookupds in use
    use_lookups: Callable[[Sequence[str]], None]  # these from now on; raises BadInput


def tokens_of(config: BrokerConfig) -> Tokens | None:
    """Who may use the HTTP here. None: everybody."""
    own = None if config.token is None else Tokens.of_one(config.token)
    if own is None or config.tokens is None:
        return own or config.tokens
    return config.tokens.joined(own)  # which the list may name too, as that of a broker
