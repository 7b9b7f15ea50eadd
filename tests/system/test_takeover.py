"""Two distributors on one PostgreSQL, as processes: the leader ends in each way that there is, the other one leads on,
and broker, publisher and operator find it by themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trio

from srtm.client.distributor import DistributorClient
from tests.support import postgres
from tests.support.ports import pick_addresses
from tests.system.running import publish_all, receiving, srtm, topic_file

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
PATIENCE_S = 60
TAKES_OVER_WITHIN_S = 5.0  # the promise: not a guess at how fast a machine is


@dataclass
class Part:
    """A process, up to its word that it is ready."""

    url: str
    process: subprocess.Popen[bytes]

    async def health(self) -> dict[str, object] | None:
        """None: no answer."""
        async with httpx.AsyncClient(trust_env=False, timeout=1) as client:
            try:
                return (await client.get(f"{self.url}/healthz")).json()
            except httpx.TransportError:
                return None

    async def takes_writes(self) -> bool:
        """Of what is not there, so that nothing is changed."""
        async with httpx.AsyncClient(trust_env=False, timeout=1) as client:
            try:
                return (await client.delete(f"{self.url}/v1/topics/no-such-topic")).status_code == 404
            except httpx.TransportError:
                return False

    async def comes_to(self, role: str) -> dict[str, object]:
        """Its health then. On a busy machine a single question may be answered too late."""
        with trio.fail_after(PATIENCE_S):
            while (health := await self.health()) is None or health.get("role") != role:
                await trio.lowlevel.checkpoint()
        return health


@dataclass
class Cluster:
    server: postgres.Server
    store: str
    leader: Part
    standby: Part

    @property
    def urls(self) -> str:
        """As $SRTM_DISTRIBUTOR lists them: the one that is about to end first."""
        return f"{self.leader.url},{self.standby.url}"

    def end_sessions_of_the_leader(self) -> None:
        self.server.ask(self.store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state <> 'active'")


@pytest.fixture
def cluster(
    postgres_server: postgres.Server, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    first, second, tcp, http = pick_addresses(4)
    monkeypatch.setenv("SRTM_DISTRIBUTOR", f"http://{first},http://{second}")
    with ExitStack() as stack:
        parts = [
            start(stack, address, "distributor", "--http-address", address, "--store", postgres_url)
            for address in (first, second)
        ]
        flags = ["--name", "b1", "--tcp-address", tcp, "--http-address", http, "--data-path", str(tmp_path)]
        start(stack, http, "broker", *flags, "--mcap", "1000")
        yield Cluster(postgres_server, postgres_url, *parts)


def start(stack: ExitStack, address: str, *arguments: str) -> Part:
    process = stack.enter_context(subprocess.Popen([sys.executable, "-m", "srtm", *arguments], stderr=subprocess.PIPE))
    stack.callback(process.kill)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line.decode())
        if " INFO: ready " in said[-1] or " INFO: listening " in said[-1]:
            return Part(f"http://{address}", process)
    raise AssertionError("".join(said))


async def refused_write(part: Part) -> dict[str, object]:
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        answer = await client.delete(f"{part.url}/v1/topics/no-such-topic")
    assert answer.status_code == 503
    return answer.json()


@pytest.mark.parametrize("end", ["SIGKILL", "SIGSTOP", "SIGTERM", "lost connection"])
async def test_when_the_leader_ends_the_standby_leads_on_and_everybody_finds_it(cluster, tmp_path, end):
    leader, standby = cluster.leader, cluster.standby
    await leader.comes_to("leader")
    assert (await standby.comes_to("standby"))["leader"] == leader.url
    with trio.fail_after(3 * PATIENCE_S):
        # The operator and the clients have the standby first: it sends them on.
        await submit(topic_file(tmp_path, "cars", publishers=2, rate_each=10, rate=40, more='lease = "15s"'))
        async with DistributorClient(standby.url) as client:
            shown = await client.topic("cars")
        assert [place["broker"] for place in shown["brokers"]] == ["b1"]
        async with receiving("cars", cluster.urls) as received:
            await publish_all("cars", "cars-1", cluster.urls, [b"before"])
            await received.wait_for([b"before"])
            break_leader(cluster, end)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one_leads, cluster, leader if end != "lost connection" else None)
                await publish_all("cars", "cars-1", cluster.urls, [b"meanwhile"])
                await submit(topic_file(tmp_path, "lorries", publishers=2, rate_each=10, rate=40))
            await publish_all("cars", "cars-2", cluster.urls, [b"after"])
            await publish_all("lorries", "lorries-1", cluster.urls, [b"new"])
            await received.wait_for([b"before", b"meanwhile", b"after"])
            assert set(received.bodies.values()) == {1}
        assert await lapses(shown["brokers"][0]["broker"], cluster) == 0  # the takeover came well inside the lease
        if end == "SIGSTOP":  # it wakes, and is none any more, from its first word on
            leader.process.send_signal(signal.SIGCONT)
            assert (await refused_write(leader))["title"] == "standby"
            await leader.comes_to("standby")
            assert (await refused_write(leader))["leader"] == standby.url


async def lapses(broker: str, cluster: Cluster) -> int:
    """How often the lease of its share of "cars" has ended without renewal."""
    async with DistributorClient(cluster.standby.url) as client:
        known = next(one for one in await client.brokers() if one["name"] == broker)
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        return (await client.get(f"http://{known['http_address']}/v1/topics/cars/bucket")).json()["lapses"]


async def submit(file: Path) -> None:
    """At the first try, also right after a takeover: it waits for the brokers that are on record."""
    done = await srtm("topic", "submit", str(file))
    assert done.returncode == 0, done.stderr


async def one_leads(cluster: Cluster, ended: Part | None) -> None:
    """Until another one than ``ended`` takes writes, which must be within what is promised (``pytest -rP`` shows how
    long it took); after a lost connection the same one may win again."""
    broken_s = trio.current_time()
    parts = [part for part in (cluster.leader, cluster.standby) if part is not ended]
    with trio.fail_after(TAKES_OVER_WITHIN_S):
        while not any([await part.takes_writes() for part in parts]):
            await trio.lowlevel.checkpoint()
    print(f"without a leader for {trio.current_time() - broken_s:.2f} s")


def break_leader(cluster: Cluster, end: str) -> None:
    if end == "lost connection":
        cluster.end_sessions_of_the_leader()
    else:
        cluster.leader.process.send_signal(getattr(signal, end))
