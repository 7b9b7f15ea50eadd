"""Online fitting with real processes on a broker that a topic has already: that one's promise goes first.

Messages take 10 ms each (a laboratory). The topic that is there sends 10 a second. A new one is let in step by step: of
20 a second it leaves room at each, of 120 it overloads the broker at the last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.cluster.supervisor import Cluster, cluster
from srtm.control import FITTING_ENDED
from srtm.errors import NotFound, Unavailable
from tests.system.running import receiving, srtm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

PROMISED_MS = 800  # what a busy machine adds is far below
PUBLISHERS = 10  # of the new topic


def write(folder: Path, name: str, *, publishers: int, rate_each: float, latency_ms: float) -> Path:
    """p90: few messages decide it."""
    file = folder / f"{name}.toml"
    file.write_text(
        f'name = "{name}"\nrate = {1.1 * publishers * rate_each}\nburst = 20\nmode = "static"\n'
        f"[slo]\npercentile = 90\nlatency_ms = {latency_ms}\n"
        f'[[publishers]]\ncount = {publishers}\nrate = {rate_each}\nid_prefix = "{name}-"\n'
    )
    return file


async def send(client: DistributorClient, publisher_id: str, rate: float) -> None:
    """Whenever the distributor lets it in."""
    topic, _, _ = publisher_id.partition("-")
    while True:
        try:
            async with Publisher(topic, publisher_id, distributor=client) as publisher:
                due_s = trio.current_time()
                while True:
                    await publisher.publish(b"x")
                    due_s += 1 / rate
                    await trio.sleep_until(due_s)
        except (NotFound, Unavailable):  # not yet
            await trio.sleep(0.2)


async def kept(client: DistributorClient) -> None:
    """Until what the first topic's broker saw lately is within the promise (p95 for its p90)."""
    while True:
        (place,) = (await client.topic("road"))["brokers"]
        recent = (place["report"] or {}).get("recent")
        if recent and recent["total"]["count"]:
            parts = recent["access"]["p95_ms"] + recent["processing"]["p95_ms"]
            if parts < PROMISED_MS:
                return
        await trio.sleep(0.5)


@asynccontextmanager
async def road(folder: Path) -> AsyncIterator[tuple[Cluster, DistributorClient]]:
    """The topic that is there, its promise kept."""
    file = write(folder, "road", publishers=1, rate_each=10, latency_ms=PROMISED_MS)
    options = ["--lab-service-time", "10000"]
    async with (
        cluster(brokers=1, mcap=1_000, data=folder / "data", broker_options=options) as running,
        DistributorClient(running.distributor) as client,
        receiving("road", running.distributor),
        receiving("yard", running.distributor),
        trio.open_nursery() as nursery,
    ):
        placed = await srtm("topic", "submit", str(file), "--fitting", "off", distributor=running.distributor)
        assert placed.returncode == 0, placed.stderr
        nursery.start_soon(send, client, "road-0", 10)
        await kept(client)
        yield running, client
        nursery.cancel_scope.cancel()


async def fitted(folder: Path, running: Cluster, rate: float, latency_ms: float) -> Any:
    """The new topic, at ``rate`` msg/s in all, once its fitting has ended."""
    file = write(folder, "yard", publishers=PUBLISHERS, rate_each=rate / PUBLISHERS, latency_ms=latency_ms)
    await srtm("topic", "submit", str(file), "--fitting", "always", distributor=running.distributor)
    async with DistributorClient(running.distributor) as client:
        while (found := await client.fitting("yard"))["state"] not in FITTING_ENDED:  # noqa: ASYNC110 - another process
            await trio.sleep(0.5)
        return {**await client.topic("yard"), "fitting": found}


@asynccontextmanager
async def sending(client: DistributorClient, rate: float) -> AsyncIterator[None]:
    """The new topic's publishers, as soon as each is let in."""
    async with trio.open_nursery() as nursery:
        for number in range(PUBLISHERS):
            nursery.start_soon(send, client, f"yard-{number}", rate / PUBLISHERS)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.long  # the other one holds that the promise of a topic that is there goes first
async def test_a_topic_that_leaves_room_for_the_one_that_was_there_fits_and_its_worst_second_is_told(
    tmp_path: Path,
) -> None:
    with trio.fail_after(140):
        async with road(tmp_path) as (running, client):
            async with sending(client, rate=20):
                view = await fitted(tmp_path, running, rate=20, latency_ms=500)
            told = await srtm("topic", "show", "yard", distributor=running.distributor)
    assert view["fitting"]["state"] == "fits"
    assert 0 < view["fitting"]["others_worst_ms"] <= PROMISED_MS
    assert view["state"] == "placed"
    assert "worst second of the topics that were there" in told.stdout.decode()


async def test_a_topic_that_leaves_no_room_gives_way_and_whatever_it_sends_breaks_no_promise_any_more(
    tmp_path: Path,
) -> None:
    with trio.fail_after(140):
        async with road(tmp_path) as (running, client), sending(client, rate=120):
            view = await fitted(tmp_path, running, rate=120, latency_ms=500)
            await kept(client)  # though they go on
            while (await client.topic("yard"))["state"] == "placed":  # noqa: ASYNC110 - another process decides
                await trio.sleep(0.5)
    assert view["fitting"]["state"] == "does not fit"
    assert view["fitting"]["others_worst_ms"] > PROMISED_MS
