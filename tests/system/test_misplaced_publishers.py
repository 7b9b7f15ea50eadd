"""Plain publishers at a broker that their topic is not placed on, while its layout is searched: the tokens come to
them, what has waited drains, and from five seconds on no message waits.

``tests/bench/simulation/test_broker_reports.py`` holds the same in virtual time.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from srtm import protocol as wire
from srtm.client.distributor import DistributorClient
from srtm.client.subscriber import Subscriber
from srtm.cluster.supervisor import cluster

pytestmark = [pytest.mark.slow, pytest.mark.long]
COUNT, RATE = 20, 10.0  # publishers, msg/s of each
FIRST, JUDGED = 1_000, 2_000  # messages: five seconds, and the ten after them
TOPIC = {
    "name": "words",
    "rate": 260,
    "burst": 40,
    "slo": {"percentile": 99, "latency_ms": 1.0},
    "publishers": [{"count": COUNT, "rate": RATE, "id_prefix": "w-"}],
}


class Fleet:
    """Each message says by whom it is and which of his."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.came: Counter[bytes] = Counter()
        self.is_over = False

    async def publish(self, publisher_id: str, address: str) -> None:
        """At that broker, whatever it says. Who is late skips what he missed: nobody sends faster than he declared."""
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as nursery:
            await stream.send_all(wire.MAGIC + wire.identify({"client_id": publisher_id, "feature_negotiation": False}))
            nursery.start_soon(_read_all, stream)
            while not self.is_over:
                self.sent[publisher_id] += 1
                await stream.send_all(wire.pub("words", f"{publisher_id} {self.sent[publisher_id]}".encode()))
                await trio.sleep(1 / RATE)
            nursery.cancel_scope.cancel()

    async def receive(self, distributor: str) -> None:
        async with Subscriber("words", "test", distributor=distributor) as subscriber:
            async for delivery in subscriber:
                self.came[delivery.body] += 1
                await delivery.finish()

    async def until_all_came(self) -> None:
        while len(self.came) < self.sent.total():  # noqa: ASYNC110 - one task reads, whoever waits looks
            await trio.sleep(0.05)


async def _read_all(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


async def _until_none_waits(client: DistributorClient, broker: str, received: int) -> dict[str, Any]:
    """That broker's report once so many messages came there and none waits."""
    while True:
        for one in (await client.topic("words"))["brokers"]:
            report = one["report"] if one["broker"] == broker else None
            if report is not None and report["received"] >= received and report["backlog"] == 0:
                return dict(report)
        await trio.sleep(0.1)


@pytest.mark.parametrize("moved", [False, True], ids=["there from the start", "moved during the search"])
async def test_tokens_come_to_a_broker_that_had_no_share_and_then_no_message_waits(tmp_path: Path, moved: bool) -> None:
    fleet = Fleet()
    with trio.fail_after(180):
        async with (
            cluster(
                brokers=2, mcap=1_300, data=tmp_path / "data", distributor_options=("--fitting", "always")
            ) as running,
            DistributorClient(running.distributor) as client,
            trio.open_nursery() as nursery,
        ):
            await client.create_or_change_topic("words", TOPIC)
            (home,) = {one["broker"] for one in (await client.topic("words"))["brokers"]}
            other = next(one for one in running.brokers if one.name != home)
            nursery.start_soon(fleet.receive, running.distributor)
            if moved:
                place = next(one for one in running.brokers if one.name == home)
                async with trio.open_nursery() as publishing:
                    for number in range(COUNT):
                        publishing.start_soon(fleet.publish, f"w-{number}", place.tcp_address)
                    await _until_none_waits(client, home, FIRST)
                    fleet.is_over = True
                fleet.is_over = False
            async with trio.open_nursery() as publishing:
                for number in range(COUNT):
                    publishing.start_soon(fleet.publish, f"w-{number}", other.tcp_address)
                before = await _until_none_waits(client, other.name, FIRST)
                after = await _until_none_waits(client, other.name, before["received"] + JUDGED)
                fleet.is_over = True
            await fleet.until_all_came()
            nursery.cancel_scope.cancel()
    assert after["delayed"] - before["delayed"] <= 0.01 * (after["received"] - before["received"])
