"""How nodes of one limit find each other by the distributor: each tells where it listens, and is told where others do.

How many must have told before a node decides is a setting, because what it lets through alone depends on how many there
are. Nodes that come later are found by those that run. A node that starts again keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import trio

from limiting.config import LimitConfig
from limiting.nodes.links import read_key
from srtm.client.distributor import DistributorClient
from srtm.concurrency.outage import Outage
from srtm.errors import BadInput, SrtmError
from srtm.log import Log

_AGAIN_S = 0.5  # until all are there
_EVERY_S = 5.0  # then, for nodes that come later, and a distributor that has started anew


class Discovery:
    """One node's calls to the distributor. ``config`` names no peers."""

    def __init__(self, config: LimitConfig, client: DistributorClient, log: Log) -> None:
        assert config.node is not None
        assert config.peers_address is not None
        assert config.cluster_key_file is not None
        self._config = config
        self._client = client
        self._log = log
        self._own = (read_key(config.cluster_key_file).group("nodes").hex(), config.node, config.peers_address)

    async def found(self) -> LimitConfig:
        """Wait until as many nodes have told as must, and return the settings with all of them as peers.

        Raises BadInput.
        """
        wanted, said = self._config.nodes, ""
        while True:
            try:
                nodes = await self._client.tell_limit_node(*self._own)
            except BadInput:
                raise
            except SrtmError as error:
                news = str(error)
            else:
                told = ", ".join(sorted(nodes))
                if len(nodes) >= wanted:
                    peers = ",".join(f"{name}={address}" for name, address in sorted(nodes.items()))
                    return replace(self._config, peers=peers, distributor=())
                news = f"{len(nodes)} of {wanted} nodes are there: {told}"
            if news != said:
                self._log.info("waits_for_nodes", reason=news)
            said = news
            await trio.sleep(_AGAIN_S)

    async def run(self, meet: Callable[[Mapping[str, str]], None]) -> None:
        """Tell again and again, until cancelled. ``meet`` takes what is told: addresses by name."""
        outage = Outage()
        while True:
            await trio.sleep(_EVERY_S)
            try:
                meet(await self._client.tell_limit_node(*self._own))
            except SrtmError as error:
                if outage.is_news(str(error)):
                    self._log.warning("not_told", error=str(error))
            else:
                if outage.ends():
                    self._log.info("told_again")
