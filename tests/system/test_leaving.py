"""A publisher is moved off a broker that has a long queue: nothing that it sends to the new one comes before that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import trio

from broker.config import EngineConfig
from srtm._native import Engine
from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber
from tests.system.numbering import Numbering

pytestmark = pytest.mark.slow

SERVICE_NS = 5_000_000  # of the slow one
QUEUED = 200  # a second of that, which is twenty times what a guess of 50 ms would allow for


@contextmanager
def engine(**more: int) -> Iterator[tuple[Engine, str]]:
    """A broker's data plane, and its address."""
    running = Engine(msgspec.json.encode(EngineConfig(tcp_address="127.0.0.1:0", **more)))  # type: ignore[arg-type]
    port, *_ = running.start()
    try:
        yield running, f"127.0.0.1:{port}"
    finally:
        running.stop(0)


async def test_what_is_queued_at_the_old_broker_comes_before_what_goes_to_the_new_one() -> None:
    numbering = Numbering()
    with engine(lab_service_time_ns=SERVICE_NS) as (slow, here), engine() as (_, there), trio.fail_after(25):
        async with (
            Subscriber("t", "c", brokers=[here, there]) as subscriber,
            Publisher("t", "p", brokers=[here]) as publisher,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(numbering.take_all, subscriber)
            for _ in range(QUEUED):
                await publisher.publish(numbering.next_body("p"))
            assert slow.move_publisher("t", "p", there, ("", "", "", ""), 1) == 1
            while publisher.address != there:
                await publisher.publish(numbering.next_body("p"))
            await publisher.publish(numbering.next_body("p"))
            await numbering.until_all_came()
            nursery.cancel_scope.cancel()
    assert numbering.out_of_order == {}
