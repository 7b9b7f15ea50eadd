"""Floods through Python against a real broker of ours: everything that is counted happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from bench.harness.cluster_runs.broker_api import create_channel
from bench.harness.load.flood import (
    Connect,
    FanOut,
    FloodPlan,
    Http,
    Mpub,
    Ping,
    Pub,
    Publish,
    Read,
    held_flood,
    run_flood,
)
from bench.harness.systems.systems import System, free_addresses, nsqd_in_place
from srtm.errors import BadInput, Unavailable

pytestmark = pytest.mark.slow  # real processes, real time


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[System]:
    with trio.fail_after(50):
        async with nsqd_in_place(folder / "broker") as system:
            yield system


async def test_what_is_published_waits_and_is_read_once(tmp_path: Path) -> None:
    async with broker(tmp_path) as system:
        await create_channel(system.http_address, "t", "c")
        published = await run_flood(FloodPlan(target=system.tcp_address, task=Publish(topic="t", messages=4_000)))
        taken = await run_flood(FloodPlan(target=system.tcp_address, task=Read(topic="t", channel="c", messages=4_000)))
    assert (published.count, taken.count, taken.intact) == (4_000, 4_000, True)
    assert published.per_s == 4_000 / published.elapsed_s
    assert 0 < taken.busy <= 1.05


async def test_every_channel_gets_every_message_and_every_request_its_answer(tmp_path: Path) -> None:
    async with broker(tmp_path) as system:
        fan_out = FanOut(topic="f", channels=5, batch=10, window=20, warmup_s=0.1, duration_s=0.3)
        delivered = await run_flood(FloodPlan(target=system.tcp_address, task=fan_out))
        for asks in (Pub(), Mpub(batch=5), Ping()):
            asked = Http(asks=asks, topic="h", connections=3, warmup_s=0.1, duration_s=0.3)
            answered = await run_flood(FloodPlan(target=system.http_address, task=asked))
            assert answered.count > 10, asks
    assert delivered.intact
    assert delivered.count > 100


async def test_a_crowd_is_held_for_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    async with broker(tmp_path) as system:
        alone = open_files()
        async with held_flood(FloodPlan(target=system.tcp_address, task=Connect(connections=50))) as result:
            assert result.count == 50
            assert open_files() >= alone + 50
        assert open_files() < alone + 50


def open_files() -> int:
    """Of this process, whose are the crowd's."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_plan_that_breaks_a_rule_is_refused_naming_field_value_and_rule() -> None:
    with pytest.raises(BadInput, match=r"messages.*401.*must be a multiple of the batch"):
        await run_flood(FloodPlan(target="127.0.0.1:1", task=Publish(topic="t", messages=401)))


async def test_a_broker_that_is_not_there_is_named() -> None:
    nobody, _ = free_addresses()
    with pytest.raises(Unavailable, match=nobody):
        await run_flood(FloodPlan(target=nobody, task=Publish(topic="t", messages=400)))
