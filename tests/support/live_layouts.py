"""LayoutJobs of a distributor in this process, over simulated brokers in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from distributor.fitting.events import Scaler
from distributor.fitting.task import FittingOptions
from distributor.fitting.transitions import Rules
from distributor.jobs.layout_environment import LayoutEnvironment
from distributor.jobs.layout_jobs import LayoutJobs
from distributor.jobs.scaling import NoScaler
from distributor.sync.service import SyncService
from srtm.control import FITTING_ENDED
from srtm.errors import Unavailable
from srtm.log import Log
from srtm.topics.spec import Strategy
from tests.support.distributor_in_process import Distributor, spec
from tests.support.measuring_broker import MeasuringBroker

ALWAYS = FittingOptions(method="always")
ON_BREACH = FittingOptions()
OFF = FittingOptions(method="off")


@dataclass
class FakeScaler:
    """Starts brokers of names to come."""

    names: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    trouble: Unavailable | None = None  # of the next question
    start: Callable[[str], None] = lambda _name: None

    async def ask(self, brokers: int) -> None:
        self.asked.append(brokers)
        if self.trouble is not None:
            raise self.trouble
        for _ in range(brokers):
            if self.names:
                self.start(self.names.pop(0))

    async def run(self) -> None:
        await trio.sleep_forever()


@dataclass
class Live:
    """``traffic``: topics whose publishers send, to every broker."""

    distributor: Distributor
    layouts: LayoutJobs
    syncing: SyncService
    scaler: FakeScaler
    nursery: trio.Nursery
    traffic: set[str]
    brokers: dict[str, MeasuringBroker] = field(default_factory=dict)
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)

    async def start_broker(self, name: str, mcap: float = 0.0) -> MeasuringBroker:
        broker = MeasuringBroker(name, self.syncing, mcap=mcap, layouts=self.layouts, traffic=self.traffic)
        self.brokers[name] = broker
        await broker.settle()
        self.nursery.start_soon(self.run_broker, broker)
        return broker

    async def start_brokers(self, names: str) -> None:
        for name in names:
            await self.start_broker(name)

    async def run_broker(self, broker: MeasuringBroker) -> None:
        with trio.CancelScope() as self.scopes[broker.name]:
            await broker.run()

    async def submit(self, name: str = "cars", options: FittingOptions | None = ALWAYS, **more: object) -> None:
        registry = self.distributor.registry
        before = registry.topics.get(name)
        document = {"rate": 200.0, "burst": 500, "slo": {"percentile": 99, "latency_ms": 1}, **more}
        topic = await registry.submit(spec(name, **document), fitting=self.layouts.intended(options))
        await self.layouts.submitted(topic, before, options)

    async def beside_broken(self, brokers: str, count: int, placement: Strategy = "srtm") -> None:
        """Submits cars with ``count`` publishers, and once they fit, bikes to brokers of which "a" breaks the promise
        to cars."""
        await self.start_brokers(brokers)
        await self.submit(count=count, placement=placement)
        await self.ended()
        self.brokers["a"].broken.add("cars")
        await self.submit("bikes", count=30, placement=placement)

    def view(self, name: str = "cars") -> dict[str, object]:
        return self.layouts.view(self.distributor.registry.topic(name))

    async def queued(self, name: str) -> None:
        """Until a look has heard its traffic while another is searched for."""
        with trio.fail_after(5):
            while self.view(name)["state"] != "queued":  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)

    async def ended(self, name: str = "cars", within_s: float = 200.0) -> dict[str, object]:
        with trio.fail_after(within_s):
            while self.view(name)["state"] not in FITTING_ENDED:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.2)
        return self.view(name)

    def placed_on(self, name: str = "cars") -> set[str]:
        return set(self.distributor.registry.topic(name).placement.brokers)


@asynccontextmanager
async def live(
    distributor: Distributor,
    scaler: Scaler = Scaler.NONE,
    default: FittingOptions = OFF,
    traffic: Iterable[str] = ("cars", "bikes"),
    rules: Rules | None = None,
) -> AsyncIterator[Live]:
    """``traffic``: topics whose publishers send."""
    registry = distributor.registry
    fake = FakeScaler()
    scaling = NoScaler() if scaler is Scaler.NONE else fake
    around = LayoutEnvironment.of(registry, scaler, scaling, Log("test", lambda _line: None))
    layouts = LayoutJobs(around, default, rules, wall_s=lambda: 0.0)
    async with trio.open_nursery() as nursery:
        made = Live(distributor, layouts, around.syncing, fake, nursery, set(traffic))
        fake.start = lambda name: nursery.start_soon(made.start_broker, name)
        nursery.start_soon(registry.run)
        nursery.start_soon(layouts.run)
        yield made
        nursery.cancel_scope.cancel()
