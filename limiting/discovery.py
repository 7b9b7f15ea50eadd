"""How nodes of one limit find each other by the distributor: each tells where it listens, until all have.

How many there are is a setting of each, because what a node lets through alone depends on it. So the list is the same
at all of them. A node that starts again keeps its name and its address.
"""

from __future__ import annotations

from dataclasses import replace

import trio

from limiting.config import LimitConfig
from limiting.nodes.links import read_key
from srtm.client.distributor import DistributorClient
from srtm.concurrency.outage import Outage
from srtm.errors import BadInput, SrtmError
from srtm.log import Log

_AGAIN_S = 0.5  # until all are there
_EVERY_S = 5.0  # then, for a distributor that has started anew


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
        """Wait until all nodes have told, and return the settings with them as peers. Raises BadInput."""
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
                if len(nodes) > wanted:
                    raise BadInput("nodes", wanted, f"must be the number of all nodes, and these have told: {told}")
                if len(nodes) == wanted:
                    peers = ",".join(f"{name}={address}" for name, address in sorted(nodes.items()))
                    return replace(self._config, peers=peers, distributor=())
                news = f"{len(nodes)} of {wanted} nodes are there: {told}"
            if news != said:
                self._log.info("waits_for_nodes", reason=news)
            said = news
            await trio.sleep(_AGAIN_S)

    async def run(self) -> None:
        """Tell again and again, until cancelled."""
        outage = Outage()
        while True:
            await trio.sleep(_EVERY_S)
            try:
                await self._client.tell_limit_node(*self._own)
            except SrtmError as error:
                if outage.is_news(str(error)):
                    self._log.warning("not_told", error=str(error))
            else:
                if outage.ends():
                    self._log.info("told_again")
