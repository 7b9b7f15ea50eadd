"""Load shifts onto one of two real brokers until it breaks the promise: a few publishers move, and then it is quiet."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from srtm.client.distributor import DistributorClient, Json
from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber
from srtm.cluster.supervisor import cluster
from tests.system.numbering import Numbering

# ``tests/distributor/fitting/test_layout_loop.py`` holds the same in virtual time.
pytestmark = [pytest.mark.slow, pytest.mark.long]

SERVICE_US = 5000  # a broker carries 200 msg/s, then its queue grows
SHIFTED = 3.0  # times what they declared


class Fleet:
    """Each publisher sends as it is numbered, at its own pace, which the test changes. How long a publish takes does
    not slow it down; what it could not send for longer is left out."""

    def __init__(self, client: DistributorClient, numbering: Numbering) -> None:
        self.times: dict[str, float] = {}
        self.over = False
        self._client, self._numbering = client, numbering

    async def publish(self, publisher_id: str, rate: float) -> None:
        async with Publisher("roads", publisher_id, distributor=self._client) as publisher:
            due_s = trio.current_time()
            while not self.over:
                await publisher.publish(self._numbering.next_body(publisher_id))
                due_s = max(due_s + 1 / (rate * self.times.get(publisher_id, 1.0)), trio.current_time())
                await trio.sleep_until(due_s)


def document() -> Json:
    return {
        "name": "roads",
        "rate": 1200,
        "burst": 100,
        "placement": "lb",
        "split": "proportional",
        "mode": "static",
        "slo": {"percentile": 95, "latency_ms": 150},
        "publishers": [{"count": 20, "rate": 8, "id_prefix": "p"}],
    }


async def lines(client: DistributorClient) -> list[str]:
    """Of the decision log, oldest first."""
    return [entry["lines"][0] for entry in reversed(await client.decisions("roads"))]


async def until_relieved(client: DistributorClient) -> None:
    while True:
        found = await client.fitting("roads")
        if found["outcome"] is not None:
            assert found["outcome"] == "fits", found["explanation"]
            return
        await trio.sleep(0.5)


async def test_a_broker_that_got_too_much_gives_up_a_few_publishers_and_it_settles(tmp_path: Path) -> None:
    with trio.fail_after(200):
        async with (
            cluster(
                brokers=2,
                mcap=150,
                data=tmp_path / "data",
                broker_options=["--lab-service-time", str(SERVICE_US)],
                distributor_options=["--relief-grace-s", "2"],
            ) as running,
            DistributorClient(running.distributor) as client,
        ):
            await client.create_or_change_topic("roads", document())
            before = await client.publishers("roads")
            overloaded = before["brokers"][0]
            numbering = Numbering()
            fleet = Fleet(client, numbering)
            async with Subscriber("roads", "all", distributor=client) as subscriber, trio.open_nursery() as nursery:
                nursery.start_soon(numbering.take_all, subscriber)
                async with trio.open_nursery() as publishing:
                    for one in before["ids"]:
                        publishing.start_soon(fleet.publish, one, 8.0)
                    while min(len(numbering.came[one]) for one in before["ids"]) < 24:  # three seconds as declared
                        await numbering.changed()
                    for one, broker in zip(before["ids"], before["brokers"], strict=True):
                        if broker == overloaded:
                            fleet.times[one] = SHIFTED
                    await until_relieved(client)
                    after = await client.publishers("roads")
                    await trio.sleep(10)  # the time in which nothing more may move
                    last = await client.publishers("roads")
                    said = await lines(client)
                    fleet.over = True
                await numbering.until_all_came()
                nursery.cancel_scope.cancel()
    moved = [
        one for one, was, now in zip(before["ids"], before["brokers"], after["brokers"], strict=True) if was != now
    ]
    assert 1 <= len(moved) <= 6
    assert {before["brokers"][before["ids"].index(one)] for one in moved} == {overloaded}
    assert last["brokers"] == after["brokers"]
    assert any("publishers to move" in line for line in said)
    assert numbering.out_of_order == {}
