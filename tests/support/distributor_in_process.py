"""A distributor in this process: its real store on disk, and simulated brokers that sync as the real one does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import trio

from distributor.config import DistributorConfig
from distributor.registry.registry import Registry
from distributor.storage.store import Store
from distributor.sync.service import SyncService
from srtm.control import BrokerMachine, DesiredTopic, Share, SyncAnswer, SyncRequest, TopicReport, UnassignedPublisher
from srtm.topics.spec import TopicSpec, parse_topic_json


def spec(name: str = "cars", count: int = 100, rate: float = 10.0, **changes: object) -> TopicSpec:
    document: dict[str, object] = {
        "name": name,
        "rate": count * rate * 1.1,
        "burst": 30,
        "mode": "static",
        "split": "proportional",  # shares that a reader can check
        "slo": {"percentile": 99, "latency_ms": 5},
        "publishers": [{"count": count, "rate": rate, "group_size": 5, "id_prefix": "p"}],
    }
    return parse_topic_json({**document, **changes})


@dataclass
class FakeBroker:
    """Applies what it is told, acknowledges it with the next sync."""

    name: str
    syncing: SyncService
    mcap: float = 600.0
    lab_service_time_ns: int = 0
    machine: BrokerMachine | None = None
    incarnation: str = "1"
    claims: tuple[str, ...] | None = ("its directory",)  # None: a broker of an earlier version
    host: str = "127.0.0.1"
    version: int = 0
    remembered: int = 0  # what the data directory says
    topics: dict[str, DesiredTopic] = field(default_factory=dict)
    reports: list[TopicReport] = field(default_factory=list)
    strangers: list[UnassignedPublisher] = field(default_factory=list)
    stayed: list[UnassignedPublisher] = field(default_factory=list)  # told twice to move
    accepting: bool = True
    draining: bool = False  # as told
    takes_differences: bool = True
    cluster: int = 0
    peers: dict[str, str] = field(default_factory=dict)  # {broker: incarnation}, as told
    peer_claims: dict[str, list[str]] = field(default_factory=dict)
    held: dict[str, tuple[int, int]] = field(default_factory=dict)  # {topic: in force, micro}
    fulls: list[str] = field(default_factory=list)  # topics whose bucket started full here, each time that it did

    @property
    def address(self) -> str:
        return f"{self.host}:{4150 + ord(self.name[-1])}"

    async def sync(self, wait_s: float = 0.0) -> SyncAnswer:
        request = SyncRequest(
            incarnation=self.incarnation,
            srtm_version="0.1.0",
            tcp_address=self.address,
            http_address="127.0.0.1:4151",
            mcap=self.mcap,
            lab_service_time_ns=self.lab_service_time_ns,
            machine=self.machine,
            claims=None if self.claims is None else [f"{self.name} {claim}" for claim in self.claims],
            accepting=self.accepting,
            have_version=self.version,
            remembered=self.remembered,
            applied={name: topic.share.version for name, topic in self.topics.items()},
            held={name: self.held[name] for name, topic in self.topics.items() if topic.share.recall},
            topics=self.reports,
            strangers=self.strangers,
            cluster=self.cluster,
            peers=self.peers,
            peer_claims=self.peer_claims,
            names_peers=True,
            stayed=self.stayed,
            wait_s=wait_s,
        )
        self.strangers, self.stayed = [], []
        request = msgspec.structs.replace(request, takes_differences=self.takes_differences)
        answer = await self.syncing.sync(self.name, request)
        if not answer.unchanged:
            new = {name: topic for name, topic in self.topics.items() if answer.since and name not in answer.removed}
            new |= {topic.topic: topic for topic in answer.topics}
            self.fulls += [name for name in new.keys() - self.topics.keys() if new[name].share.full]
            self.topics = new
            self.held = {name: self._amounts(topic.share, self.held.get(name, (0, 0))) for name, topic in new.items()}
        self.version, self.cluster = answer.version, answer.cluster
        if answer.brokers is not None:
            self.peers, self.peer_claims = answer.brokers, answer.broker_claims
        self.draining = answer.draining
        return answer

    async def settle(self) -> None:
        """Until there is no news."""
        while not (await self.sync()).unchanged:
            pass

    async def run(self) -> None:
        """As the real one: at once after news, else once a second."""
        while True:
            started_s = trio.current_time()
            if (await self.sync(wait_s=1.0)).unchanged:
                await trio.sleep_until(started_s + 1.0)

    def restart(self) -> None:
        self.incarnation = str(int(self.incarnation) + 1)
        self.version, self.topics, self.reports, self.held = 0, {}, [], {}

    def share(self, topic: str = "cars") -> tuple[float, float]:
        """In force, in messages."""
        rate, burst = self.held[topic]
        return rate / 1e6, burst / 1e6

    @staticmethod
    def _amounts(share: Share, before: tuple[int, int]) -> tuple[int, int]:
        return before if share.recall else (round(share.rate * 1e6), round(share.burst * 1e6))


@dataclass
class Distributor:
    store: Store
    registry: Registry
    syncing: SyncService

    @classmethod
    async def open(cls, path: Path, **settings: object) -> Distributor:
        config = DistributorConfig(store=f"sqlite:///{path}", **settings)
        store = await Store.open(config.store)
        registry = await Registry.load(store, config)
        return cls(store, registry, SyncService(registry))

    async def brokers(self, *names: str, mcap: float = 600.0) -> list[FakeBroker]:
        made = [FakeBroker(name, self.syncing, mcap) for name in names]
        for broker in made:
            await broker.settle()
        return made

    async def submit(self, topic: TopicSpec) -> None:
        await self.registry.submit(topic)

    async def aclose(self) -> None:
        await self.store.aclose()


async def settle(*brokers: FakeBroker) -> None:
    """Rounds until nobody hears anything new."""
    news = True
    while news:
        news = False
        for broker in brokers:
            news |= not (await broker.sync()).unchanged


def total(*brokers: FakeBroker, topic: str = "cars") -> tuple[float, float]:
    shares = [broker.share(topic) for broker in brokers]
    return round(sum(rate for rate, _ in shares), 6), round(sum(burst for _, burst in shares), 6)
