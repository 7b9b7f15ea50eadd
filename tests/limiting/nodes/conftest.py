"""Nodes of one limit in virtual time, linked by streams in memory that can be cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest
import trio
from trio.testing import memory_stream_pair

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions, Nodes
from limiting.nodes.members import read_members
from limiting.wire.cluster_key import ClusterKey
from srtm.contracts.contract import Mode, read_contract
from srtm.contracts.verdict import Verdict
from srtm.limiting.limiter import Limiter

KEY = ClusterKey(b"k" * 32)
NAMES = "abc"
PEERS = ",".join(f"{name}=host-{name}:4197" for name in NAMES)


def contract(rate: float = 1, burst: float = 12, **others: object) -> dict[str, object]:
    policies = [{"name": "burst", "rate": rate, "burst": burst}]
    return {"namespace": "api", "subject": "*", "policies": policies, **others}


async def said_alike(node: Decisions, local: Limiter, cost: int) -> tuple[Verdict, Verdict]:
    """A peek and a check of one user, by ``local`` and by a node, that say the same. Returns what the checks said."""
    looked = local.peek("api", "user", cost), await node.peek("api", "user", cost)
    assert looked[0].policies == looked[1].policies
    assert looked[0].wait_ns == looked[1].wait_ns
    said = local.check("api", "user", cost), (await node.check("api", ["user"], cost)).decisive
    assert said[0].policies == said[1].policies
    assert (said[0].allowed, said[0].wait_ns) == (said[1].allowed, said[1].wait_ns)
    return said


class Rig:
    """``running``: the nodes that run; ``cut``: pairs of nodes that cannot reach each other."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self._streams: dict[frozenset[str], tuple[trio.abc.Stream, trio.abc.Stream]] = {}
        self.running: dict[str, Decisions] = {}
        self.cut: set[frozenset[str]] = set()
        self.keys = dict.fromkeys(NAMES, KEY)

    def start(
        self,
        name: str,
        mode: Mode,
        *,
        first: bool = True,
        document: dict[str, object] | None = None,
        peers: str = PEERS,
        most_subjects: int = 1_000,
    ) -> None:
        offset_ns = 10**12 * ord(name)  # clocks have nothing in common

        def clocks() -> tuple[int, int]:
            now_ns = round(trio.current_time() * 1e9)
            return now_ns + offset_ns, now_ns + 10**18

        async def connect(to: str) -> trio.abc.Stream:
            pair = frozenset((name, to))
            if to not in self.running or pair in self.cut:
                raise OSError("no route")
            here, there = memory_stream_pair()
            self._streams[pair] = here, there
            mesh = self.running[to].mesh
            assert mesh is not None
            self._nursery.start_soon(mesh.answer, there)
            return here

        nodes = Nodes(read_members(name, peers), self.keys[name], mode, first)
        decisions = Decisions(Limiter(clocks=clocks), nodes, connect, clocks=clocks, most_subjects=most_subjects)
        decisions.put(read_contract(document or contract()))
        self.running[name] = decisions
        self._nursery.start_soon(self._run, name, decisions)

    async def _run(self, name: str, decisions: Decisions) -> None:
        with trio.CancelScope() as scope:
            self._scopes[name] = scope
            await decisions.run()

    def over_http(self, name: str) -> httpx.AsyncClient:
        """A client of a node's routes."""
        decisions = self.running[name]
        app = make_app(Parts(decisions, ContractStore(decisions), LimitConfig()))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://limit")

    async def kill(self, name: str) -> None:
        """As a process dies: its connections end."""
        del self.running[name]
        self._scopes[name].cancel()
        for pair in [pair for pair in self._streams if name in pair]:
            await self._close(pair)

    async def split(self, one: str, others: str) -> None:
        """Until ``heal``."""
        for other in others:
            self.cut.add(frozenset((one, other)))
            await self._close(frozenset((one, other)))

    async def heal(self) -> None:
        self.cut.clear()
        await self.linked()

    async def _close(self, pair: frozenset[str]) -> None:
        for stream in self._streams.pop(pair, ()):
            with suppress(trio.BrokenResourceError):
                await trio.aclose_forcefully(stream)

    async def linked(self) -> None:
        """Until all that run are linked, and have greeted each other."""
        for _ in range(100):
            if all(
                state.connected
                for name, node in self.running.items()
                for state in node.states()
                if state.name in self.running and self.keys[name] is self.keys[state.name]
            ):
                break
            await trio.sleep(0.1)
        else:
            raise AssertionError("nodes did not link within 10 s")
        await trio.sleep(1.5)

    async def let(self, name: str, subject: str = "user", cost: int = 1) -> bool:
        return (await self.running[name].check("api", [subject], cost)).allowed

    async def taken(self, name: str, times: int, subject: str = "user") -> int:
        """How many of so many checks pass."""
        return sum([await self.let(name, subject) for _ in range(times)])


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """In virtual time where the test asks for ``autojump_clock`` itself."""
    async with trio.open_nursery() as nursery:
        yield Rig(nursery)
        nursery.cancel_scope.cancel()
