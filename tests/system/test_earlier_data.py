"""What 3cf09e8 wrote opens with today's code: a store, a broker's data directory, and a whole cluster's."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from distributor.config import DistributorConfig
from distributor.service import serve
from srtm.client.subscriber import Subscriber
from srtm.cluster.supervisor import cluster
from tests.support.archives import unpack
from tests.support.broker_process import Subscriber as PlainSubscriber
from tests.support.broker_process import broker

pytestmark = pytest.mark.slow
ARCHIVE = Path(__file__).parent.parent / "fixtures" / "data-3cf09e8.tar.gz"
LATER = b"plain later"  # deferred until 2026-11-25: before, it does not come
NOBODY = "--distributor=http://127.0.0.1:1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the directory of ``srtm up``; ``tests/fixtures/README.md`` says what is in it."""
    with tarfile.open(ARCHIVE) as archive:
        unpack(archive, tmp_path / "data")
    return tmp_path / "data"


def shares(view: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {share["broker"]: (share["rate"], share["burst"]) for share in view["brokers"]}


async def test_the_store_has_its_topics_shares_publishers_brokers_and_decisions(data: Path) -> None:
    config = DistributorConfig(http_address="127.0.0.1:0", store=f"sqlite:///{data / 'store.sqlite3'}")
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config)
            async with httpx.AsyncClient(base_url=f"http://{bound.http}/v1", trust_env=False) as client:
                parks, roads = (await client.get("/topics")).json()
                assigned = (await client.get("/topics/roads/publishers")).json()
                decisions = (await client.get("/topics/roads/decisions")).json()
                brokers = (await client.get("/brokers")).json()
                gone = await client.get("/topics/gone")
            nursery.cancel_scope.cancel()
    assert (roads["name"], roads["state"], roads["mode"], roads["version"]) == ("roads", "placed", "static", 3)
    assert shares(roads) == {"broker-1": (500.0, 25.0), "broker-2": (500.0, 25.0)}
    assert (parks["name"], parks["mode"], parks["lease"]) == ("parks", "fitted", "15s")
    assert shares(parks) == {"broker-1": (100.0, 3.0)}
    assert gone.status_code == 404
    assert assigned["ids"] == [f"roads-{number}" for number in range(10)]
    assert assigned["brokers"] == ["broker-1", "broker-2"] * 5
    assert decisions[0]["lines"][0] == "submitted"
    assert [(one["name"], one["mcap"], one["dead"]) for one in brokers] == [
        ("broker-1", 600.0, False),
        ("broker-2", 600.0, False),
    ]


def test_a_broker_delivers_the_messages_in_its_queues_in_order(data: Path) -> None:
    before = (data / "broker-1" / "srtm.incarnation").read_text()
    with broker(data / "broker-1", NOBODY) as running:
        plain = PlainSubscriber(running.tcp, "plain", "first")
        bodies = [plain.body() for _ in range(20)]
        if LATER in bodies:
            bodies[bodies.index(LATER) :] = [*bodies[bodies.index(LATER) + 1 :], plain.body()]
        assert bodies == [f"plain {number}".encode() for number in range(1, 21)]
        plain.close()
        archive = PlainSubscriber(running.tcp, "roads", "archive")
        archived = [archive.body().decode() for _ in range(40)]
        archive.close()
        assert archived == [f"roads-{one} {number}" for one in (2, 4, 6, 8) for number in range(1, 11)]
        first, second = running.topic("plain")["channels"]
        assert (first["paused"], second["paused"]) == (False, True)
        assert second["depth"] + second["deferred_count"] == 21
        assert (
            running.topic("roads")["bucket"]["rate"] == 0
        )  # it is known as limited; a share comes with the first sync
    start, directory = (data / "broker-1" / "srtm.incarnation").read_text().split("-")
    assert directory == before.partition("-")[2]
    assert start > before.partition("-")[0]


async def test_a_cluster_goes_on_where_it_was(data: Path) -> None:
    received: dict[str, list[int]] = defaultdict(list)
    with trio.fail_after(60):
        async with cluster(brokers=2, mcap=600, data=data) as running:
            async with Subscriber("roads", "archive", distributor=running.distributor) as subscriber:
                for _ in range(100):
                    delivery = await anext(subscriber)
                    await delivery.finish()
                    publisher, _, number = delivery.body.decode().partition(" ")
                    received[publisher].append(int(number))
            async with running.client(timeout_s=10) as client:
                roads = await client.topic("roads")
    assert received == {f"roads-{one}": list(range(1, 11)) for one in range(1, 11)}
    assert shares(roads) == {"broker-1": (500.0, 25.0), "broker-2": (500.0, 25.0)}
