"""Who looks after topics: what of it fails is told, and ends nothing else."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from srtm.errors import Unavailable
from srtm.log import Log
from tests.support.distributor_in_process import Distributor, spec

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_a_store_that_takes_nothing_is_told_once_and_so_is_that_it_does_again(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    registry = distributor.registry
    said: list[str] = []
    turns: list[float] = []

    async def turn() -> None:
        turns.append(trio.current_time())
        if len(turns) < 9:
            raise Unavailable("store sqlite:///s: the disk is full")

    monkeypatch.setattr(registry.maintenance, "_log", Log("distributor", said.append))
    monkeypatch.setattr(registry.maintenance, "_run_steps", turn)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.run)
        await trio.sleep(60.0)
        nursery.cancel_scope.cancel()
    assert len(turns) > 10
    assert [line.partition(": ")[2].strip() for line in said] == [
        "topics are not looked after until this is over reason='store sqlite:///s: the disk is full'",
        "topics are looked after again",
    ]


async def test_a_defect_in_one_step_of_the_maintenance_is_said_and_ends_neither_the_others_nor_the_maintenance(
    distributor, monkeypatch, autojump_clock
):
    async def fail() -> None:
        raise ZeroDivisionError("a defect")

    registry, said = distributor.registry, []
    monkeypatch.setattr(registry.maintenance, "_log", Log("distributor", said.append))
    monkeypatch.setattr(registry.maintenance, "_advance_shares", fail)
    await distributor.submit(spec(count=50))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.run)
        await trio.sleep(2)
        await distributor.brokers("a")
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert registry.topic("cars").placement.state == "placed"
    assert any("a step of the maintenance is defective" in line and "a defect" in line for line in said)
