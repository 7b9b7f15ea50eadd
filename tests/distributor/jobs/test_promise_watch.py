"""What the decision log says of promises that turn."""

from __future__ import annotations

import pytest
import trio

from distributor.jobs.promise_watch import PromiseWatch
from srtm.errors import Unavailable
from tests.support.distributor_in_process import Distributor, FakeBroker, spec
from tests.support.topic_reports import period, report


def notes(distributor: Distributor) -> list[str]:
    lines = [entry.lines[0] for entry in distributor.registry.decisions["cars"]]
    return [line.partition(":")[0] for line in lines if line.startswith("promise")]


async def say(broker: FakeBroker, access_ms: float, seconds: float, count: int = 1000) -> None:
    """The broker reports that delay for so long."""
    for _ in range(round(seconds)):
        broker.reports = [report(period(access_ms, 1.0, count))]
        await broker.sync()
        await trio.sleep(1.0)


@pytest.fixture
async def broker(distributor):
    (one,) = await distributor.brokers("a", mcap=5000.0)
    await distributor.submit(spec())
    return one


async def test_a_promise_that_turns_is_noted_once(distributor, broker, nursery, autojump_clock):
    nursery.start_soon(PromiseWatch(distributor.registry, distributor.syncing).run)
    await say(broker, 1.0, 70)
    assert notes(distributor) == []  # nothing has turned
    await say(broker, 9.0, 70)
    assert notes(distributor) == ["promise broken"]
    await say(broker, 9.0, 70, count=3)
    assert notes(distributor) == ["promise broken"]  # of few messages nothing is known
    await say(broker, 1.0, 70)
    assert notes(distributor) == ["promise broken", "promise kept"]


async def test_a_figure_at_the_border_of_its_promise_is_noted_once_a_minute(
    distributor, broker, nursery, autojump_clock
):
    nursery.start_soon(PromiseWatch(distributor.registry, distributor.syncing).run)
    for _ in range(12):
        await say(broker, 9.0, 10)
        await say(broker, 1.0, 10)
    assert 3 <= len(notes(distributor)) <= 5  # in 240 s


async def test_what_the_store_does_not_take_is_noted_later(distributor, broker, nursery, autojump_clock, monkeypatch):
    async def away(*_: object) -> None:
        raise Unavailable("the store")

    with monkeypatch.context() as patched:
        patched.setattr(distributor.registry.control_loops, "note", away)
        nursery.start_soon(PromiseWatch(distributor.registry, distributor.syncing).run)
        await say(broker, 9.0, 20)
    assert notes(distributor) == []
    await say(broker, 9.0, 10)
    assert notes(distributor) == ["promise broken"]
