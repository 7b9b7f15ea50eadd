"""Processes of a limit cluster: their ports are their own, and one that ends is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from bench.limit_cluster.nodes import LimitNodes
from bench.limit_cluster.processes import START_S, Processes
from srtm.errors import Unavailable

LOWEST_EPHEMERAL = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


async def test_no_relay_and_no_connection_can_get_the_port_of_a_node(tmp_path: Path, nursery: trio.Nursery) -> None:
    nodes = LimitNodes(tmp_path, "abc", "", "replicated", nursery, 0.0)
    ports = {int(address.rpartition(":")[2]) for address in (*nodes._http.values(), *nodes._own.values())}
    assert len(ports) == 6
    assert max(ports) < LOWEST_EPHEMERAL


@pytest.mark.slow
async def test_a_process_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    await processes.run("a", "no-such-command")
    with trio.fail_after(START_S / 2), pytest.raises(Unavailable, match="No such command 'no-such-command'"):
        await processes.until("a", "http://127.0.0.1:1", bool)
    await processes.stop()
