"""The whole of the distributor's registry and the brokers' lease holders, as they run, in virtual time: links are cut
and healed, processes stopped, killed and started again, among them the distributor. Whatever happens, over every
interval no more is let go than the envelope allows, and the shares come back to exactly that."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.leases.lease_holder import LeaseHolder
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.control import DesiredTopic, SyncAnswer, SyncRequest
from srtm.errors import Conflict, PeerError
from srtm.token_bucket.bucket import conforms_due
from srtm.units import to_micro
from tests.support.distributor_in_process import Distributor, spec
from tests.support.greedy_engine import GreedyEngine
from tests.support.lease_world import Clock

LEASE_S = 5.0
RATE, BURST = 1100.0, 30.0
NAMES = "abc"


def now_ns() -> int:
    return round(trio.current_time() * 1e9)


@dataclass
class Node:
    """One broker of the cluster, whichever incarnation runs."""

    name: str
    cluster: Cluster
    incarnation: int = 0
    is_up: bool = False
    is_cut: bool = False
    remembered: dict[str, DesiredTopic] = field(default_factory=dict)
    awake: trio.Event = field(default_factory=trio.Event)

    def start(self) -> None:
        self.incarnation += 1
        self.is_up = True
        self.go_on()
        self.engine = GreedyEngine(now_ns, Clock(now_ns, offset_ns=ord(self.name) * 10**12))
        self.holder = LeaseHolder(self.engine)  # type: ignore[arg-type]  # it is an engine in all that matters
        self.holder.hold(list(self.remembered.values()), 0)

    @property
    def is_stopped(self) -> bool:
        return not self.awake.is_set()

    def stop(self) -> None:
        self.awake = trio.Event()

    def go_on(self) -> None:
        self.awake.set()

    def kill(self) -> None:
        if self.is_up:
            self.is_up = False
            self.go_on()
            self.engine.stop(0)
            self.cluster.released_ns += self.engine.released_ns

    async def run(self) -> None:
        """Lets go ten times a second what there is; syncs as the real one does."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._let_go)
            while True:
                started_s = trio.current_time()
                if not (self.is_up and not self.is_stopped and await self._sync()):
                    await trio.sleep_until(started_s + 1.0)

    async def _let_go(self) -> None:
        while True:
            if self.is_up and not self.is_stopped:
                self.engine.release_all()
            await trio.sleep(0.1)

    async def _sync(self) -> bool:
        """Whether there was news."""
        incarnation, asked_ns = self.incarnation, Clock(now_ns, offset_ns=ord(self.name) * 10**12)()
        request = SyncRequest(
            incarnation=f"{incarnation}-/{self.name}",
            srtm_version="0.1.0",
            tcp_address=f"127.0.0.1:{4150 + ord(self.name)}",
            http_address="127.0.0.1:4151",
            mcap=600.0,
            have_version=self.holder.version,
            applied=self.holder.applied,
            takes_differences=True,
            wait_s=1.0,
        )
        if self.is_cut:
            return False
        with trio.move_on_after(2.0):
            answer = await self.cluster.ask(self.name, request)
            await self.awake.wait()  # the answer waits in a socket, however long
            if answer is None or self.is_cut or not self.is_up or self.incarnation != incarnation:
                return False
            try:
                self.holder.apply(answer, asked_ns)
            except PeerError:
                return False
            if not answer.unchanged:
                self.remembered = {} if not answer.since else self.remembered
                self.remembered |= {topic.topic: topic for topic in answer.topics}
            return not answer.unchanged
        return False


class Cluster:
    def __init__(self, distributor: Distributor, nursery: trio.Nursery) -> None:
        self.released_ns: list[int] = []
        self.nodes = {name: Node(name, self) for name in NAMES}
        self._distributor = distributor
        self._nursery = nursery
        self._term = trio.CancelScope()
        self.lead()

    @property
    def registry(self) -> Registry:
        return self._distributor.registry

    def lead(self) -> None:
        async def run(scope: trio.CancelScope, registry: Registry) -> None:
            with scope:
                await registry.run()

        self._term = trio.CancelScope()
        self._nursery.start_soon(run, self._term, self.registry)

    async def crash(self) -> None:
        """The distributor; the next one begins with what is in the store."""
        self._term.cancel()
        registry = await Registry.load(self._distributor.store, self.registry.config)
        self._distributor.registry, self._distributor.syncing = registry, SyncService(registry)
        self.lead()

    async def ask(self, name: str, request: SyncRequest) -> SyncAnswer | None:
        asked = self._distributor.syncing
        try:
            answer = await asked.sync(name, request)
        except Conflict:
            return None
        return answer if asked is self._distributor.syncing else None  # its connection is gone

    def in_force(self) -> tuple[int, int]:
        shares = [node.engine.share_micro for node in self.nodes.values() if node.is_up]
        return sum(rate for rate, _ in shares), sum(burst for _, burst in shares)


async def do(cluster: Cluster, what: str, name: str) -> None:
    node = cluster.nodes[name]
    match what:
        case "cut" | "heal":
            node.is_cut = what == "cut"
        case "stop":
            node.stop()
        case "go on" if node.is_up and node.is_stopped:
            node.engine.release_all()  # the engine is awake first
            node.go_on()
        case "kill":
            node.kill()
        case "start" if not node.is_up:
            node.start()
        case "prove" if not node.is_up and name in cluster.registry.brokers:
            await cluster.registry.declare_dead(name, f"{node.incarnation}-/{name}")
        case "crash":
            await cluster.crash()


LIMIT = {"burst": BURST}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("cut", "cut", "heal", "stop", "go on", "kill", "start", "prove", "crash")),
        st.sampled_from(NAMES),
        st.sampled_from((0.2, 1.0, 3.0, 8.0)),
    ),
    min_size=1,
    max_size=12,
)


async def live_through(path: Path, lease: str, steps: list[tuple[str, str, float]]) -> None:
    distributor = await Distributor.open(path)
    async with trio.open_nursery() as nursery:
        cluster = Cluster(distributor, nursery)
        for node in cluster.nodes.values():
            node.start()
            nursery.start_soon(node.run)
        await trio.sleep(2)
        await cluster.registry.submit(spec(lease=lease, **LIMIT))
        await trio.sleep(3)
        for what, name, dwell_s in steps:
            await do(cluster, what, name)
            await trio.sleep(dwell_s)
        for name in NAMES:  # the last fault is over
            for what in ("start", "heal", "go on"):
                await do(cluster, what, name)
        await trio.sleep(3 * LEASE_S)
        assert cluster.in_force() == (to_micro(RATE, "rate"), to_micro(BURST, "burst"))
        for node in cluster.nodes.values():
            node.kill()
        nursery.cancel_scope.cancel()
    await distributor.aclose()
    assert conforms_due(cluster.released_ns, to_micro(RATE, "rate"), to_micro(BURST, "burst")) is None


async def at_once(work: Callable[..., object], *arguments: object, **_: object) -> object:
    await trio.lowlevel.checkpoint()
    return work(*arguments)


def run(lease: str, steps: list[tuple[str, str, float]]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        patched.setattr(trio.to_thread, "run_sync", at_once)
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(live_through, Path(directory) / "store.sqlite3", lease, steps, clock=clock)


@given(steps=STEPS)
@settings(max_examples=15)
def test_a_timed_lease_keeps_the_envelope_and_gives_it_all_back(steps: list[tuple[str, str, float]]) -> None:
    run("5s", steps)


@given(steps=STEPS)
@settings(max_examples=15)
def test_kept_leases_keep_the_envelope_and_give_it_all_back(steps: list[tuple[str, str, float]]) -> None:
    run("keep", steps)
