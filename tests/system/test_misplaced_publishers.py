"""Plain publishers at a broker that their topic is not placed on, while its layout is searched: the tokens come to
them at once, and the promise holds from five seconds on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from srtm import protocol as wire
from srtm.client.distributor import DistributorClient
from srtm.client.subscriber import Subscriber
from srtm.cluster.supervisor import cluster

pytestmark = [pytest.mark.slow, pytest.mark.long]
COUNT, RATE = 20, 10.0  # publishers, msg/s of each
PROMISE_S = 0.1  # on a machine that others use too
RUN_S, SETTLED_S = 15.0, 5.0
TOPIC = {
    "name": "words",
    "rate": 260,
    "burst": 40,
    "slo": {"percentile": 99, "latency_ms": PROMISE_S * 1e3},
    "publishers": [{"count": COUNT, "rate": RATE, "id_prefix": "w-"}],
}


class Sent:
    """Messages carry the time at which they were sent; what came is {that time: delay}, s."""

    def __init__(self) -> None:
        self.sent = 0
        self.delays_s: dict[float, float] = {}

    async def publish(self, publisher_id: str, address: str, for_s: float) -> None:
        """At that broker, whatever it says."""
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as nursery:
            await stream.send_all(wire.MAGIC + wire.identify({"client_id": publisher_id, "feature_negotiation": False}))
            nursery.start_soon(_read_all, stream)
            started_s = trio.current_time()
            for number in range(round(for_s * RATE)):
                await trio.sleep_until(started_s + number / RATE)
                self.sent += 1
                await stream.send_all(wire.pub("words", repr(trio.current_time()).encode()))
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()

    async def publish_all(self, address: str, for_s: float) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(COUNT):
                nursery.start_soon(self.publish, f"w-{number}", address, for_s)

    async def receive(self, distributor: str) -> None:
        async with Subscriber("words", "test", distributor=distributor) as subscriber:
            async for delivery in subscriber:
                sent_s = float(delivery.body)
                self.delays_s[sent_s] = trio.current_time() - sent_s
                await delivery.finish()

    def p99_s(self, since_s: float) -> float:
        late = sorted(delay_s for sent_s, delay_s in self.delays_s.items() if sent_s >= since_s)
        return late[int(0.99 * len(late))]


async def _read_all(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


async def test_the_promise_holds_from_five_seconds_on_at_a_broker_that_had_no_share(tmp_path: Path) -> None:
    messages = Sent()
    with trio.fail_after(180):
        async with (
            cluster(
                brokers=2, mcap=1_300, data=tmp_path / "data", distributor_options=("--fitting", "sequential")
            ) as running,
            DistributorClient(running.distributor) as client,
            trio.open_nursery() as nursery,
        ):
            await client.create_or_change_topic("words", TOPIC)
            (home,) = {one["broker"] for one in (await client.topic("words"))["brokers"]}
            other = next(one for one in running.brokers if one.name != home)
            nursery.start_soon(messages.receive, running.distributor)
            await trio.sleep(2.0)
            await messages.publish_all(other.tcp_address, RUN_S)
            came_s = min(messages.delays_s)
            nursery.cancel_scope.cancel()
    assert len(messages.delays_s) >= 0.99 * messages.sent
    assert messages.p99_s(came_s + SETTLED_S) <= PROMISE_S
