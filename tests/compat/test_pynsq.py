"""pynsq, unmodified, against our broker: its Writer and its Reader, found by address and through the distributor's
lookup routes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from srtm.supervisor import Cluster, cluster

pytestmark = pytest.mark.slow
COUNT = 100


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[Cluster]:
    with trio.fail_after(50):
        async with cluster(brokers=2, mcap=10_000, data=tmp_path) as running:
            yield running


async def run_program(how: str, address: str, *lookups: str) -> dict[str, object]:
    """See ``pynsq_program.py``; it ends by itself."""
    program = Path(__file__).with_name("pynsq_program.py")
    command = [sys.executable, str(program), how, address, "from-pynsq", str(COUNT), *lookups]
    ended = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    said: dict[str, object] = json.loads(ended.stdout)
    return said


ALL = {"bodies": [str(number) for number in range(COUNT)], "answers": {"OK": COUNT // 2 + 2}}


async def test_its_reader_finds_the_broker_by_address(two_brokers: Cluster) -> None:
    assert await run_program("by-address", two_brokers.brokers[0].tcp_address) == ALL


async def test_its_reader_finds_the_broker_by_the_distributors_lookup(two_brokers: Cluster) -> None:
    """The second broker, so that only a lookup can tell which."""
    assert await run_program("by-lookup", two_brokers.brokers[1].tcp_address, two_brokers.distributor) == ALL
