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
from srtm.net.address import format_address, is_loopback, parse_address

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

    async def run(self, http: str, meet: Callable[[Mapping[str, str]], None]) -> None:
        """Tell again and again, until cancelled. ``http``: the address that HTTP is served at. ``meet`` takes what is
        told: addresses by name."""
        outage = Outage()
        page = page_url(self._config, http)
        while True:
            try:
                meet(await self._client.tell_limit_node(*self._own, page))
            except SrtmError as error:
                if outage.is_news(str(error)):
                    self._log.warning("not_told", error=str(error))
            else:
                if outage.ends():
                    self._log.info("told_again")
            await trio.sleep(_EVERY_S)


def page_url(config: LimitConfig, http: str) -> str | None:
    """Where browsers reach the page of a node that serves HTTP at ``http``. None: on its own machine only.

    A node that listens everywhere is reached at the host at which its peers reach it.
    """
    assert config.peers_address is not None
    host, _ = parse_address("http_address", config.http_address)  # a name, where it is one: a certificate is for it
    _, port = parse_address("http_address", http)
    if host in ("0.0.0.0", "::"):
        host, _ = parse_address("peers_address", config.peers_address)
    elif is_loopback(config.http_address) and not is_loopback(config.peers_address):
        return None
    return f"{'http' if config.tls_cert is None else 'https'}://{format_address(host, port)}/"
