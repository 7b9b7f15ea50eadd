"""Systems under test: what the kernel says of a process, and one that does not come up."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from bench.harness.systems import systems
from bench.harness.systems.systems import System, answers_ping, bare_broker_command, free_addresses, running
from srtm.errors import Unavailable


def test_processor_time_and_memory_are_those_of_the_process() -> None:
    me = System("me", os.getpid(), "", "")
    before, used = me.cpu_s(), sum(os.times()[:2])
    assert before == pytest.approx(used, abs=0.05)
    without = me.resident_bytes()
    with mmap.mmap(
        -1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    ) as held:  # of its own, not the allocator's, who may keep or lend what was there before
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        assert me.resident_bytes() - without > 32 << 20


def test_two_free_addresses_are_two() -> None:
    first, second = free_addresses()
    assert first != second
    assert not answers_ping(first)


def test_no_address_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([["h:1", "h:2"], ["h:3", "h:1"], ["h:2", "h:4"], ["h:5", "h:6"]])
    monkeypatch.setattr(systems, "pick_addresses", lambda _count, _kept: next(drawn))
    assert [free_addresses(), free_addresses()] == [("h:1", "h:2"), ("h:5", "h:6")]


def test_a_bare_broker_is_given_no_distributor() -> None:
    command = bare_broker_command(Path("data/b1"), "127.0.0.1:1", "127.0.0.1:2")
    assert "--distributor" not in command
    assert command[command.index("--name") + 1] == "b1"


async def test_a_system_that_ends_at_its_start_is_refused_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "print('no such option'); raise SystemExit(2)"]
    tcp_address, http_address = free_addresses()
    with pytest.raises(Unavailable, match="x did not come up: no such option"):
        async with running("x", command, tmp_path / "x", tcp_address, http_address):
            pytest.fail("it is not running")
