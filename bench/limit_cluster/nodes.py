"""The processes of a limit service of several nodes, and the relays between them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from bench.limit_cluster.processes import Processes
from bench.limit_cluster.relay import Relay
from srtm.cluster.cluster_file import pick_addresses
from srtm.net.address import parse_peer


class LimitNodes(Processes):
    """``folder``: for files; ``contracts``: the text of the contract file; ``wire_s``: delay of each link, one way."""

    def __init__(
        self, folder: Path, names: str, contracts: str, mode: str, nursery: trio.Nursery, wire_s: float
    ) -> None:
        super().__init__(folder)
        self.names = names
        self._mode = mode
        self._nursery = nursery
        self._key, self._contracts = folder / "cluster.key", folder / "contracts.toml"
        self._key.write_text(secrets.token_hex(32))
        self._contracts.write_text(contracts)
        addresses = pick_addresses(2 * len(names), {})
        self._http = dict(zip(names, addresses[::2], strict=True))
        self._own = dict(zip(names, addresses[1::2], strict=True))
        self._relays = {
            (name, other): Relay(parse_peer("peers", self._own[other])[1], wire_s)
            for name in names
            for other in names
            if name != other
        }
        self._relayed: dict[tuple[str, str], str] = {}  # {(from, to): address of the relay}

    def url(self, name: str) -> str:
        """Where a node answers checks."""
        return f"http://{self._http[name]}"

    async def open_relays(self) -> None:
        """Listen between all nodes."""
        for pair, relay in self._relays.items():
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self._relayed[pair] = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            self._nursery.start_soon(trio.serve_listeners, relay.answer, [listener])

    async def start(self, name: str, *options: str) -> None:
        """Start a node; it answers when this returns. Raises Unavailable."""
        peers = {each: self._relayed.get((name, each), self._own[each]) for each in self.names}
        arguments = ["limit", "serve", "--mode", self._mode, *options]
        arguments += ["--http-address", self._http[name], "--contracts", str(self._contracts)]
        arguments += ["--node", name, "--peers", ",".join(f"{each}={address}" for each, address in peers.items())]
        arguments += ["--peers-address", self._own[name], "--cluster-key-file", str(self._key)]
        await self.run(name, *arguments)
        await self._until_linked(name, ())

    async def linked(self, *names: str) -> None:
        """Until these nodes reach each other; none named: all."""
        wanted = set(names or self.names)
        for name in wanted:
            await self._until_linked(name, wanted - {name})

    async def _until_linked(self, name: str, reached: Iterable[str]) -> None:
        """Until a node answers, and is linked with others."""

        def is_linked(found: Any) -> bool:
            states = {each["name"]: each["connected"] for each in found}
            return all(states[each] for each in reached)

        await self.until(name, f"{self.url(name)}/limit/v1/nodes", is_linked)

    def cut(self, name: str) -> None:
        """Cut all links of a node."""
        for pair, relay in self._relays.items():
            if name in pair:
                relay.cut()

    def heal(self) -> None:
        """No link is cut any more."""
        for relay in self._relays.values():
            relay.heal()


@asynccontextmanager
async def limit_nodes(
    folder: Path, names: str, contracts: str, mode: str, wire_s: float = 0.0
) -> AsyncIterator[LimitNodes]:
    """Start all nodes for the first time, linked."""
    async with trio.open_nursery() as nursery:
        nodes = LimitNodes(folder, names, contracts, mode, nursery, wire_s)
        await nodes.open_relays()
        try:
            async with trio.open_nursery() as starting:
                for name in names:
                    starting.start_soon(nodes.start, name, "--new-cluster")
            await nodes.linked()
            yield nodes
        finally:
            with trio.CancelScope(shield=True):
                await nodes.stop()
            nursery.cancel_scope.cancel()
