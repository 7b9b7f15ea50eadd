"""A broker's service around recording engines, in this process."""

import trio

from broker.config import BrokerConfig


def config(tmp_path, **changes):
    """Of a broker alone, on free ports."""
    return BrokerConfig(
        **{
            "name": "b1",
            "tcp_address": "127.0.0.1:4150",
            "http_address": "127.0.0.1:0",
            "data_path": str(tmp_path),
            **changes,
        }
    )


async def until(condition):
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - the broker under test cannot signal us
            await trio.sleep(0.002)


async def ask(engine, method, target, body=b""):
    """Status and body of the answer to a request that comes by HTTP."""
    number = engine.ask(method, target, body)
    await until(lambda: number in engine.answers)
    status, _, body = engine.answers[number]
    return status, body
