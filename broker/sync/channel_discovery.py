"""Creates the channels that a new topic has on other brokers, before any message of it is delivered: the engine holds
a new topic until then, but not for long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig
from broker.nsqd.nsqlookupd import MAX_ANSWER_BYTES, Nsqlookupds, known_channels
from srtm.log import Log
from srtm.net.failover import connect_to
from srtm.net.http_client import HttpClient

if TYPE_CHECKING:
    from srtm._native import Engine

QUERY_TIMEOUT_S = 1.0  # nsqd's own bound: a new topic is held no longer than this
_MAX_QUERIES = 16  # at one time: a thousand new topics at once must not take a thousand sockets


class ChannelDiscovery:
    """Asks the distributors and the nsqlookupds in use.

    ``is_managed`` tells whether a distributor manages a topic here: then it has named the channels already.
    """

    def __init__(
        self, config: BrokerConfig, engine: Engine, lookups: Nsqlookupds, is_managed: Callable[[str], bool], log: Log
    ) -> None:
        self._config = config
        self._engine = engine
        self._lookups = lookups
        self._is_managed = is_managed
        self._log = log
        self._limit = trio.CapacityLimiter(_MAX_QUERIES)
        self._known: set[str] = set()  # restored topics, which the engine will report as created

    @property
    def is_needed(self) -> bool:
        """Whether other services may know channels of a topic that is new here."""
        return bool(self._config.distributors or self._lookups.addresses)

    def skip(self, topics: Iterable[str]) -> None:
        """Do not ask about ``topics`` when they are created: they are restored with their channels."""
        self._known.update(topics)

    def forget(self, topic: str) -> None:
        """The topic was deleted. If it is created again, it is new."""
        self._known.discard(topic)

    async def discover(self, topic: str) -> None:
        """Returns when the topic is released, at the latest ``QUERY_TIMEOUT_S`` later."""
        if self.is_needed and topic not in self._known:
            with trio.move_on_after(QUERY_TIMEOUT_S):
                async with self._limit:
                    await self._create_channels(topic)
        self._known.discard(topic)
        self._engine.release_topic(topic)

    async def _create_channels(self, topic: str) -> None:
        config = self._config
        distributors = () if self._is_managed(topic) else config.distributors
        asked = [connect_to(url, token=config.token, ca_file=config.ca_file) for url in distributors]
        asked += [HttpClient(url, answer_limit_bytes=MAX_ANSWER_BYTES) for url in self._lookups.http_urls]
        create = partial(self._engine.create_channel, topic)
        most = config.engine.max_channels_per_topic or sys.maxsize
        await known_channels(topic, asked, QUERY_TIMEOUT_S, most, self._log, create)
