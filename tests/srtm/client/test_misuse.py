"""Wrong use of the client library is told at once, in words that say what to write instead."""

from __future__ import annotations

import pytest
from anyio.abc import TaskGroup

import srtm
from tests.support.both_loops import both_loops
from tests.support.publishing import Assignments, running
from tests.support.scripted_broker import Network


def publisher() -> srtm.Publisher:
    return srtm.Publisher("t", "p", brokers=["127.0.0.1:1"])


def subscriber() -> srtm.Subscriber:
    return srtm.Subscriber("t", "c", brokers=["127.0.0.1:1"])


@both_loops
async def test_publishing_without_the_block_is_refused_and_does_not_wait() -> None:
    with pytest.raises(srtm.Misuse, match=r"write 'async with srtm.Publisher\(...\) as publisher:'"):
        await publisher().publish(b"one")


@both_loops
async def test_receiving_without_the_block_is_refused_and_does_not_wait() -> None:
    with pytest.raises(srtm.Misuse, match=r"write 'async with srtm.Subscriber\(...\) as subscriber:'"):
        await anext(subscriber())


def test_a_plain_with_block_names_both_ways_out() -> None:
    with pytest.raises(srtm.Misuse, match=r"write 'async with' for srtm.Publisher.*use srtm.blocking.Publisher"):
        publisher().__enter__()
    with pytest.raises(srtm.Misuse, match=r"write 'async with' for srtm.Subscriber.*use srtm.blocking.Subscriber"):
        subscriber().__enter__()
    with pytest.raises(srtm.Misuse, match="write 'async for'"):
        iter(subscriber())


def test_without_an_event_loop_it_says_which_ones_there_are() -> None:
    for entering in (publisher().__aenter__(), subscriber().__aenter__()):
        with pytest.raises(srtm.Misuse, match=r"a running event loop of asyncio or trio.*or use srtm.blocking"):
            entering.send(None)


@both_loops
async def test_text_for_bytes_and_one_message_for_many_are_refused_by_type(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (entered, _, _):
        with pytest.raises(srtm.BadInput, match=r"body: 'str': must be bytes: encode the text, as in body.encode\(\)"):
            await entered.publish("17.5")  # type: ignore[arg-type]
        with pytest.raises(srtm.BadInput, match=r"body: 'float': must be bytes$"):
            await entered.publish(17.5)  # type: ignore[arg-type]
        with pytest.raises(srtm.BadInput, match="bodies: 'bytes': must be a sequence of bytes"):
            await entered.publish_many(b"17.5")  # type: ignore[arg-type]


@both_loops
async def test_a_publisher_is_entered_once(network: Network, assignments: Assignments, tasks: TaskGroup) -> None:
    async with running(network, assignments) as (entered, _, _):
        with pytest.raises(srtm.Misuse, match="make a new one for each 'async with' block"):
            await entered.__aenter__()


def test_the_package_shows_what_a_program_may_use() -> None:
    for name in dir(srtm):
        assert getattr(srtm, name) is not None
    assert {"Publisher", "Subscriber", "Delivery", "Receipt", "SrtmError", "PublishRefused", "blocking"} <= set(
        dir(srtm)
    )
