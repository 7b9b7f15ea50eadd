"""One run on a testbed: the services on their hosts, a topic, its traffic, and what came of it.

The conductor is on the control host. A publishers' host runs the load generator, a subscribers' host a listener. The
generator wants a subscriber of its own beside every publisher: it gets a channel that is paused and ephemeral, which
costs the broker one more queue entry a message, and is never read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import trio

from bench.harness.cluster_runs.assigned_traffic import settled
from bench.harness.cluster_runs.broker_api import create_channel, pause_channel
from bench.harness.cluster_runs.trace import Trace, fetch_trace
from bench.harness.load.run import RunResult
from bench.harness.load.workload import Plan, Publishers, Subscriber
from bench.harness.machine.lossy_link import READY
from bench.testbed.net.layout import Host, Layout
from bench.testbed.net.one_way_delay import OneWay, between, measuring
from bench.testbed.owner import LiveTestbed
from bench.testbed.probes.listening import Heard
from bench.testbed.programs import Program, running
from srtm.client.distributor import DistributorClient, Json
from srtm.errors import SrtmError, Unavailable

TOPIC, CHANNEL, UNREAD = "testbed", "bench", "unread#ephemeral"
TCP, HTTP, DISTRIBUTOR = 4150, 4151, 4190
HEADROOM = 1.1  # r over the publishers' rate, as in section 6 of the paper
_ROOM = 0.75  # of r, that a broker is said to carry: two get a part each
_START_WITHIN_S = 60.0  # on a machine that has other work
_LOOK_S = 0.05
_WARMUP_S = 2.0
_DRAIN_S = 1.0  # beyond the longest ways, for what is still on them


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """``rate``: msg/s of each publisher."""

    publishers: int = 200
    rate: float = 10.0
    batch: int = 1
    group_size: int = 1
    process: str = "poisson"
    placement: str = "srtm"
    mode: str = "fitted"
    percentile: float = 99.0
    promise_ms: float = 5.0
    seconds: float = 10.0
    seed: int = 1

    @property
    def load(self) -> float:
        return self.publishers * self.rate

    def document(self) -> dict[str, Any]:
        """The topic as it is submitted: the bucket as in section 6 of the paper."""
        model = {"count": self.publishers, "rate": self.rate, "batch": self.batch, "group_size": self.group_size}
        return {
            "name": TOPIC,
            "rate": round(HEADROOM * self.load, 6),
            "burst": "auto",
            "mode": self.mode,
            "placement": self.placement,
            "slo": {"percentile": self.percentile, "latency_ms": self.promise_ms},
            "publishers": [{**model, "process": self.process, "id_prefix": "p"}],
        }


@dataclass(frozen=True, kw_only=True)
class Session:
    """What was measured. ``traces``: of each broker that has publishers, by name, all that its run had."""

    view: Json
    brokers: Sequence[Host]
    sent: Sequence[RunResult]  # of each publishers' host
    heard: Sequence[Heard]  # of each subscribers' host
    traces: dict[str, Trace]
    to_brokers: Sequence[OneWay] = field(default_factory=list)
    from_brokers: Sequence[OneWay] = field(default_factory=list)
    started_ns: int  # of the traffic, CLOCK_MONOTONIC


async def run_session(there: LiveTestbed, traffic: Traffic, folder: Path, tell: Callable[[str], object]) -> Session:
    """The calling thread must be on the control host (``own_network.visiting``). Raises Unavailable, PeerError,
    BadInput (the topic)."""
    url = f"http://{there.layout.control.address}:{DISTRIBUTOR}"
    async with _services(there, url, traffic, folder), DistributorClient([url]) as client:
        view = await client.create_or_change_topic(TOPIC, traffic.document(), fitting="off")
        tell(_placed(view))
        brokers = _used(there, view)
        await settled(client, TOPIC, within_s=_START_WITHIN_S)
        for broker in brokers:
            await create_channel(_http(broker), TOPIC, CHANNEL)
            await create_channel(_http(broker), TOPIC, UNREAD)
            await pause_channel(_http(broker), TOPIC, UNREAD)
        assigned = await client.publishers(TOPIC)
        return await _measure(there, traffic, assigned, await client.topic(TOPIC), brokers, folder)


async def _measure(
    there: LiveTestbed, traffic: Traffic, assigned: Json, view: Json, brokers: Sequence[Host], folder: Path
) -> Session:
    layout = there.layout
    to_brokers = between(layout.of("publisher"), brokers)
    from_brokers = between(brokers, layout.of("subscriber"))
    async with _listeners(there, brokers, folder) as listeners:
        started_ns = time.monotonic_ns()
        with measuring([*to_brokers, *from_brokers], {host.name: there.namespace(host) for host in layout.hosts}):
            sent = await _send(there, traffic, assigned, brokers, folder)
            await trio.sleep(_DRAIN_S + 2 * _longest_s(layout))
        heard = [await _heard(listener) for listener in listeners]
    traces = {broker.name: await fetch_trace(_http(broker), TOPIC) for broker in brokers}
    return Session(
        view=view,
        brokers=brokers,
        sent=sent,
        heard=heard,
        traces=traces,
        to_brokers=to_brokers,
        from_brokers=from_brokers,
        started_ns=started_ns,
    )


async def _send(
    there: LiveTestbed, traffic: Traffic, assigned: Json, brokers: Sequence[Host], folder: Path
) -> list[RunResult]:
    senders = there.layout.of("publisher")
    drain = drain_s(there.layout)
    plans = [plan(traffic, assigned, brokers, at, len(senders), drain) for at in range(len(senders))]
    results: dict[str, RunResult] = {}

    async def send(host: Host, wanted: Plan) -> None:
        command = [sys.executable, "-m", "bench.testbed.probes.sending"]
        async with running(there, host, host.name, command, folder) as program:
            await program.send_last(msgspec.json.encode(wanted))
            results[host.name] = msgspec.json.decode(await program.read_all(), type=RunResult)

    async with trio.open_nursery() as nursery:
        for host, wanted in zip(senders, plans, strict=True):
            if wanted is not None:
                nursery.start_soon(send, host, wanted)
    return [results[host.name] for host in senders if host.name in results]


def drain_s(layout: Layout) -> float:
    """After the last message: two links there, and two back for its answer."""
    return _DRAIN_S + 4 * _longest_s(layout)


def _longest_s(layout: Layout) -> float:
    """That a packet is on one link."""
    return max(host.link.delay_ms + host.link.jitter_ms for host in layout.hosts) / 1_000


def plan(traffic: Traffic, assigned: Json, brokers: Sequence[Host], host: int, hosts: int, drain: float) -> Plan | None:
    """What publishers' host number ``host`` sends: whole correlation groups, in turn. None: nothing. ``drain``: s
    that it stays connected when all is sent, for what is on its way, or lost and sent again."""
    index = {broker.name: number for number, broker in enumerate(brokers)}
    mine = [at for at in range(len(assigned["ids"])) if at // traffic.group_size % hosts == host]
    if not mine:
        return None
    publishers = Publishers(
        ids=[assigned["ids"][at] for at in mine],
        target=[index[assigned["brokers"][at]] for at in mine],
        rate=[traffic.rate] * len(mine),
        batch=[traffic.batch] * len(mine),
        group=[-1 if traffic.group_size == 1 else at // traffic.group_size for at in mine],
        process=[traffic.process] * len(mine),
    )
    return Plan(
        topic=TOPIC,
        targets=[f"{broker.address}:{TCP}" for broker in brokers],
        publishers=publishers,
        subscribers=[Subscriber(target=at, channel=UNREAD, rdy=1) for at in range(len(brokers))],
        duration_s=traffic.seconds,
        warmup_s=_WARMUP_S,
        drain_s=drain,
        seed=traffic.seed * 1_000 + host,
        slo_ms=traffic.promise_ms,
        percentile=traffic.percentile,
    )


@asynccontextmanager
async def _services(there: LiveTestbed, url: str, traffic: Traffic, folder: Path) -> AsyncIterator[None]:
    """Distributor and adaptor on control, brokers on their hosts; all have synced. Raises Unavailable."""
    control, brokers = there.layout.control, there.layout.of("broker")
    srtm = [sys.executable, "-m", "srtm"]
    distributor = [*srtm, "distributor", "--http-address", f"{control.address}:{DISTRIBUTOR}", "--relief", "off"]
    distributor += ["--store", f"sqlite:///{folder / 'store.sqlite3'}", "--fitting", "off"]
    commands = [(control, "distributor", distributor), (control, "adaptor", [*srtm, "adaptor", "--distributor", url])]
    for broker in brokers:
        data = folder / broker.name
        data.mkdir()
        command = [*srtm, "broker", "--name", broker.name, "--data-path", str(data), "--distributor", url]
        command += ["--tcp-address", f"{broker.address}:{TCP}", "--http-address", _http(broker)]
        command += ["--mcap", f"{_ROOM * HEADROOM * traffic.load * 2 / len(brokers):g}"]
        commands.append((broker, f"{broker.name}-service", command))
    async with AsyncExitStack() as stack:
        programs = [
            await stack.enter_async_context(running(there, host, name, command, folder))
            for host, name, command in commands
        ]
        await _synced(url, [broker.name for broker in brokers], programs)
        yield


async def _synced(url: str, brokers: Sequence[str], programs: Sequence[Program]) -> None:
    with trio.move_on_after(_START_WITHIN_S):
        async with DistributorClient([url]) as client:
            while not set(brokers) <= await _alive(client):
                for program in programs:
                    program.refuse_end()
                await trio.sleep(_LOOK_S)
            return
    raise Unavailable(f"the services on the testbed were not ready within {_START_WITHIN_S:g} s")


async def _alive(client: DistributorClient) -> set[str]:
    try:
        return {broker["name"] for broker in await client.brokers() if broker["alive"]}
    except SrtmError:  # not yet
        return set()


@asynccontextmanager
async def _listeners(there: LiveTestbed, brokers: Sequence[Host], folder: Path) -> AsyncIterator[list[Program]]:
    addresses = [f"{broker.address}:{TCP}" for broker in brokers]
    command = [sys.executable, "-m", "bench.testbed.probes.listening", TOPIC, CHANNEL, *addresses]
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(running(there, host, host.name, command, folder))
            for host in there.layout.of("subscriber")
        ]
        for listener in found:
            await listener.started(READY, _START_WITHIN_S)
        yield found


async def _heard(listener: Program) -> Heard:
    await listener.send_last()
    return msgspec.json.decode(await listener.read_all(), type=Heard)


def _used(there: LiveTestbed, view: Json) -> list[Host]:
    """The brokers that have publishers."""
    used = {part["broker"] for part in view["brokers"] if part["publishers"]}
    return [host for host in there.layout.of("broker") if host.name in used]


def _placed(view: Json) -> str:
    parts = ", ".join(
        f"{part['broker']}: {part['publishers']} publishers, r = {part['rate']:,.6g}, b = {part['burst']:.6g}"
        for part in view["brokers"]
    )
    return f"topic {TOPIC} (r = {view['rate']:,.6g}, b = {view['burst']:.6g}): {parts}"


def _http(broker: Host) -> str:
    return f"{broker.address}:{HTTP}"
