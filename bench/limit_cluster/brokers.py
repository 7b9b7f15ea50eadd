"""The processes of brokers under one distributor, and the relays between the brokers.

Each broker announces the address of a relay in front of its HTTP port: all news of other brokers pass it, clients do
not.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from bench.limit_cluster.processes import Processes
from bench.limit_cluster.relay import Relay
from srtm.cluster.cluster_file import pick_addresses
from srtm.net.address import parse_peer

TOPIC = "api"
_RATE_EACH, _MCAP = 500, 600  # a publisher for each broker, which has room for one
_RELAY_HOST = "127.0.0.2"  # the brokers are at 127.0.0.1, at the same ports


class Brokers(Processes):
    """``folder``: for files; ``wire_s``: delay of what brokers tell one another, one way."""

    def __init__(self, folder: Path, names: str, nursery: trio.Nursery, wire_s: float) -> None:
        super().__init__(folder)
        self.names = names
        self._nursery = nursery
        distributor, *addresses = pick_addresses(1 + 2 * len(names), {})
        self._distributor = distributor
        self._tcp = dict(zip(names, addresses[::2], strict=True))
        self._http = dict(zip(names, addresses[1::2], strict=True))
        self._relays = {name: Relay(self._port(name), wire_s) for name in names}

    def _port(self, name: str) -> int:
        return parse_peer("http_address", self._http[name])[1]

    def url(self, name: str) -> str:
        """Where a broker takes publishes."""
        return f"http://{self._http[name]}"

    async def open(self, contracts: list[dict[str, Any]]) -> None:
        """Start all, with a topic whose publishers are under the contracts of namespace ``api``."""
        for name, relay in self._relays.items():
            listeners = await trio.open_tcp_listeners(self._port(name), host=_RELAY_HOST)
            self._nursery.start_soon(trio.serve_listeners, relay.answer, listeners)
        store = f"sqlite:///{self._folder / 'store.sqlite3'}"
        options = ["--http-address", self._distributor, "--store", store, "--fitting", "off"]
        await self.run("distributor", "distributor", *options)
        await self.until("distributor", f"http://{self._distributor}/healthz", lambda _: True)
        async with trio.open_nursery() as starting:
            for name in self.names:
                starting.start_soon(self.start, name)
        topic = {
            "name": TOPIC,
            "rate": _MCAP * len(self.names),
            "burst": 100 * len(self.names),
            "mode": "static",
            "slo": {"percentile": 99, "latency_ms": 50},
            "publishers": [{"count": len(self.names), "rate": _RATE_EACH, "id_prefix": "p-"}],
            "contracts": {"publishers": "api"},
        }
        async with httpx.AsyncClient(trust_env=False, base_url=f"http://{self._distributor}") as client:
            for target, document in (("/v1/contracts", {"contracts": contracts}), ("/v1/topics", topic)):
                (await client.post(target, json=document)).raise_for_status()
        for name in self.names:
            await self.holds(name)

    async def start(self, name: str) -> None:
        """Start a broker; it knows its distributor when this returns. Raises Unavailable."""
        data = self._folder / name
        data.mkdir(exist_ok=True)
        options = ["--name", name, "--mcap", str(_MCAP), "--distributor", f"http://{self._distributor}"]
        options += ["--tcp-address", self._tcp[name], "--http-address", self._http[name]]
        await self.run(name, "broker", *options, "--broadcast-address", _RELAY_HOST, "--data-path", str(data))
        await self.until(name, f"{self.url(name)}/healthz", lambda found: found["accepting"])

    async def holds(self, name: str) -> None:
        """Until a broker has a share of the topic, and the contracts. Raises Unavailable."""
        await self.until(name, f"{self.url(name)}/v1/topics/{TOPIC}/bucket", lambda found: found["rate"] > 0)
        await self.until(name, f"{self.url(name)}/stats?format=json", lambda found: bool(found.get("contracts")))

    async def round_trip_s(self) -> float:
        """The longest of one request to each broker through its relay, which its Python answers, as it takes news."""
        longest_s = 0.0
        async with httpx.AsyncClient(trust_env=False) as client:
            for name in self.names:
                begun = time.monotonic()
                try:
                    await client.get(f"http://{_RELAY_HOST}:{self._port(name)}/healthz")
                except httpx.TransportError:
                    continue
                longest_s = max(longest_s, time.monotonic() - begun)
        return longest_s

    def cut(self, name: str) -> None:
        """Let no news to a broker, and none of it to others."""
        for other, relay in self._relays.items():
            relay.cut(b"" if other == name else f'"sender":"{name}"'.encode())

    def heal(self) -> None:
        """No relay is cut any more."""
        for relay in self._relays.values():
            relay.heal()


@asynccontextmanager
async def brokers(
    folder: Path, names: str, contracts: list[dict[str, Any]], wire_s: float = 0.0
) -> AsyncIterator[Brokers]:
    """Start all for the first time."""
    async with trio.open_nursery() as nursery:
        made = Brokers(folder, names, nursery, wire_s)
        try:
            await made.open(contracts)
            yield made
        finally:
            with trio.CancelScope(shield=True):
                await made.stop()
            nursery.cancel_scope.cancel()
