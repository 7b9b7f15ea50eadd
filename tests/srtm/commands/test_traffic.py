"""``srtm subscribe`` says what it waits for."""

from __future__ import annotations

import httpx
import pytest
import trio
import trio.testing

from srtm.client.distributor import DistributorClient
from srtm.client.subscriber import Subscriber
from srtm.commands.traffic import _print_messages
from tests.support.scripted_broker import Network

PRODUCER = {"remote_address": "", "hostname": "h", "http_port": 1, "version": "1.3.0", "tcp_port": 4150}


def looking_up(producers: list[dict[str, object]]) -> DistributorClient:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"channels": [], "producers": producers})

    return DistributorClient("http://d", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("producers", "said"),
    [([], "no broker has roads yet: waiting for one\n"), ([{**PRODUCER, "broadcast_address": "127.0.0.1"}], "")],
)
async def test_a_topic_that_no_broker_has_is_named_and_waited_for(
    capsys: pytest.CaptureFixture[str],
    autojump_clock: trio.testing.MockClock,
    producers: list[dict[str, object]],
    said: str,
) -> None:
    network = Network()
    subscriber = Subscriber("roads", "c", distributor=looking_up(producers), connect=network.connect)
    with trio.move_on_after(30) as waited:
        await _print_messages(subscriber, None)
    assert waited.cancelled_caught
    assert capsys.readouterr().err == said
