"""A topic that is new here gets the channels that it has elsewhere before any message of it moves: the engine holds it
until then, but not for long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig
from broker.nsqd.nsqlookupd import Lookups, known_channels
from srtm.log import Log
from srtm.net.failover import connect_to
from srtm.net.http_client import HttpClient

if TYPE_CHECKING:
    from srtm._native import Engine

QUERY_TIMEOUT_S = 1.0  # nsqd's own bound: a new topic is held no longer than this
# New topics that are asked about at the same time: a thousand at once must not take a thousand sockets.
_AT_ONCE = 16


class Introductions:
    """Asks the distributors and the nsqlookupds in use. ``is_managed``: whether a distributor wants that topic here: it
    has named the channels with it, and need not be asked."""

    def __init__(
        self, config: BrokerConfig, engine: Engine, lookups: Lookups, is_managed: Callable[[str], bool], log: Log
    ) -> None:
        self._config = config
        self._engine = engine
        self._lookups = lookups
        self._is_managed = is_managed
        self._log = log
        self._limit = trio.CapacityLimiter(_AT_ONCE)
        self._known: set[str] = set()  # topics whose channels are known although an event will call them new

    @property
    def are_needed(self) -> bool:
        """Someone else may know channels of a topic that is new here."""
        return bool(self._config.distributors or self._lookups.addresses)

    def spare(self, topics: Iterable[str]) -> None:
        """Nobody is asked about these when they come: they were here before."""
        self._known.update(topics)

    def forget(self, topic: str) -> None:
        """It is gone: should it come again, it is new."""
        self._known.discard(topic)

    async def introduce(self, topic: str) -> None:
        """Returns when the topic has been released, at the latest ``QUERY_TIMEOUT_S`` later."""
        if self.are_needed and topic not in self._known:
            with trio.move_on_after(QUERY_TIMEOUT_S):
                async with self._limit:
                    await self._learn_channels(topic)
        self._known.discard(topic)
        self._engine.release_topic(topic)

    async def _learn_channels(self, topic: str) -> None:
        config = self._config
        distributors = () if self._is_managed(topic) else config.distributors
        asked = [connect_to(url, token=config.token, ca_file=config.ca_file) for url in distributors]
        asked += [HttpClient(url) for url in self._lookups.http_urls]
        create = partial(self._engine.create_channel, topic)
        await known_channels(topic, asked, QUERY_TIMEOUT_S, self._log, create)
