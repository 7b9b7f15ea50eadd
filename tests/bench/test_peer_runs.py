"""``srtm bench peers``: what may be asked, what is made again, and that every real peer delivers everything."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.peer_runs import chosen, loads
from srtm.errors import BadInput


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_peers_and_loads_are_read_and_refused_by_name() -> None:
    assert chosen("redis, nats,redis") == ("redis", "nats")
    assert loads("2000,1000, 2000") == (1_000, 2_000)
    for text in ("", "kafka", "srtm", "nats,,kafka"):
        with pytest.raises(BadInput, match=r"peers: .*: must be of nsqd, nats, mosquitto, mosquitto-qos1, redis,"):
            chosen(text)
    for text in ("", "fast", "15", "0", "-10", "100010"):
        with pytest.raises(BadInput, match=r"rates: .*: must be multiples of 10 from 10 to 100,000"):
            loads(text)
