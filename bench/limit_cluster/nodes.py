"""The processes of a limit service of several nodes, and the relays between them."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio

from bench.limit_cluster.relay import Relay
from srtm.errors import Unavailable

START_S = 60.0  # six processes at once take 20 s where two processors have other work too
_POLL_S = 0.05


class LimitNodes:
    """``folder``: for files; ``contracts``: the text of the contract file; ``wire_s``: delay of each link, one way."""

    def __init__(
        self, folder: Path, names: str, contracts: str, mode: str, nursery: trio.Nursery, wire_s: float
    ) -> None:
        self.names = names
        self._folder = folder
        self._mode = mode
        self._nursery = nursery
        self._key, self._contracts = folder / "cluster.key", folder / "contracts.toml"
        self._key.write_text(secrets.token_hex(32))
        self._contracts.write_text(contracts)
        self._http = {name: _free_port() for name in names}
        self._ports = {name: _free_port() for name in names}
        self._relays = {
            (name, other): Relay(self._ports[other], wire_s) for name in names for other in names if name != other
        }
        self._addresses: dict[tuple[str, str], str] = {}
        self._processes: dict[str, trio.Process] = {}

    def url(self, name: str) -> str:
        """Where a node answers checks."""
        return f"http://127.0.0.1:{self._http[name]}"

    async def open_relays(self) -> None:
        """Listen between all nodes."""
        for pair, relay in self._relays.items():
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self._addresses[pair] = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            self._nursery.start_soon(trio.serve_listeners, relay.answer, [listener])

    async def start(self, name: str, *options: str) -> None:
        """Start a node; it answers when this returns. Raises Unavailable."""
        peers = {each: self._addresses.get((name, each), f"127.0.0.1:{self._ports[each]}") for each in self.names}
        command = [sys.executable, "-m", "srtm", "limit", "serve", "--mode", self._mode, *options]
        command += ["--http-address", f"127.0.0.1:{self._http[name]}", "--contracts", str(self._contracts)]
        command += ["--node", name, "--peers", ",".join(f"{each}={address}" for each, address in peers.items())]
        command += ["--peers-address", f"127.0.0.1:{self._ports[name]}", "--cluster-key-file", str(self._key)]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = await trio.lowlevel.open_process(command, stdout=log, stderr=log)
        await self._until(name, ())

    async def linked(self, *names: str) -> None:
        """Until these nodes reach each other; none named: all."""
        wanted = set(names or self.names)
        for name in wanted:
            await self._until(name, wanted - {name})

    async def _until(self, name: str, reached: Iterable[str]) -> None:
        """Until a node answers, and is linked with others."""
        with trio.move_on_after(START_S):
            async with httpx.AsyncClient(trust_env=False) as client:
                while True:
                    try:
                        answer = await client.get(f"{self.url(name)}/limit/v1/nodes")
                    except httpx.TransportError:
                        await trio.sleep(_POLL_S)
                        continue
                    states = {each["name"]: each["connected"] for each in answer.json()}
                    if all(states[each] for each in reached):
                        return
                    await trio.sleep(_POLL_S)
        log = (self._folder / f"{name}.log").read_text(errors="replace")[-2_000:]
        raise Unavailable(f"node {name} is not as it should be after {START_S:g} s; its log:\n{log}")

    async def kill(self, name: str) -> None:
        """End a node's process at once."""
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    def cut(self, name: str) -> None:
        """Cut all links of a node."""
        for pair, relay in self._relays.items():
            if name in pair:
                relay.cut()

    def heal(self) -> None:
        """No link is cut any more."""
        for relay in self._relays.values():
            relay.heal()

    async def stop(self) -> None:
        """End all processes."""
        for name in list(self._processes):
            await self.kill(name)


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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
