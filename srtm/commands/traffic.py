"""``srtm publish`` and ``srtm subscribe``: send lines of standard input, print messages as lines."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

import trio
import typer

from srtm.client.publisher import Publisher
from srtm.client.subscriber import Subscriber
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.console.running import run_trio
from srtm.errors import BadInput, PublishRefused

_READ_BYTES = 64 * 1024

BrokerOption = Annotated[
    list[str] | None, typer.Option("--broker", metavar="HOST:PORT", help="Use this NSQ broker, without a distributor.")
]


def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    publisher_id: Annotated[str, typer.Option("--id", metavar="ID", help="The publisher: an id of the topic file.")],
    distributor: DistributorOption = None,
    broker: BrokerOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Publish every line of standard input as one message. Empty lines are skipped."""
    publisher = Publisher(topic, publisher_id, distributor=distributor, brokers=broker or (), token=token)
    result = run_trio(partial(_publish_lines, publisher))
    show("publish", result, json_file, lambda _console: print(f"published {result['published']}", file=sys.stderr))


def subscribe(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    channel: Annotated[str, typer.Argument(metavar="CHANNEL")],
    count: Annotated[int | None, typer.Option("--count", metavar="N", help="End after N messages.")] = None,
    distributor: DistributorOption = None,
    broker: BrokerOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Print every message as one line, until Ctrl-C."""
    if count is not None and count < 1:
        raise BadInput("count", count, "must be at least 1")
    if json_file == "-":
        raise BadInput("json", json_file, "must be a file: standard output takes the messages")
    subscriber = Subscriber(topic, channel, distributor=distributor, brokers=broker or (), token=token)
    result = run_trio(partial(_print_messages, subscriber, count))
    show("subscribe", result, json_file, lambda _console: None)


async def _publish_lines(publisher: Publisher) -> dict[str, object]:
    published = retried = 0
    async with publisher:
        async for line in _lines():
            if not line:
                continue
            while not await _accepted(publisher, line):
                retried += 1
            published += 1
    return {"topic": publisher.topic, "id": publisher.publisher_id, "published": published, "retried": retried}


async def _accepted(publisher: Publisher, line: bytes) -> bool:
    """Publish a line. If the topic's bucket refused it, wait as long as it asks and return False.

    Raises PublishRefused for any other refusal.
    """
    try:
        await publisher.publish(line)
    except PublishRefused as refusal:
        if refusal.retry_after_ms is None:
            raise
        await trio.sleep(refusal.retry_after_ms / 1000)
        return False
    return True


async def _lines() -> AsyncIterator[bytes]:
    # os.read, because Ctrl-C leaves the reading thread behind. Inside sys.stdin it would hold a lock, and the
    # interpreter would crash at its exit.
    read = partial(os.read, sys.stdin.fileno(), _READ_BYTES)
    unfinished = b""
    while chunk := await trio.to_thread.run_sync(read, abandon_on_cancel=True):
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    yield unfinished


async def _print_messages(subscriber: Subscriber, count: int | None) -> dict[str, object]:
    received = 0
    async with subscriber:
        if not subscriber.brokers:
            print(f"no broker has {subscriber.topic} yet: waiting for one", file=sys.stderr, flush=True)
        async for delivery in subscriber:
            sys.stdout.buffer.write(delivery.body + b"\n")
            sys.stdout.buffer.flush()
            await delivery.finish()  # only once the line is written
            received += 1
            if received == count:
                break
    return {"topic": subscriber.topic, "channel": subscriber.channel, "received": received}
