"""Three processes hold one limit together: one is killed, one cut off, both come back. A checker merges what they let
through."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from bench.limit_cluster.clients import ask
from bench.limit_cluster.merged import Cut, Decision, judge
from bench.limit_cluster.nodes import limit_nodes

pytestmark = pytest.mark.slow

RATE, BURST = 10, 30
CONTRACTS = f"""
[[contracts]]
namespace = "api"
subject = "*"
policies = [{{name = "burst", rate = {RATE}, burst = {BURST}}}]
"""
TOLD_AFTER_S = 0.3  # what a cut held back is told as soon as the link is back


async def test_nodes_that_are_killed_and_cut_off_hold_one_limit(tmp_path: Path) -> None:
    found: list[Decision] = []
    with trio.fail_after(120):
        async with limit_nodes(tmp_path, "abc", CONTRACTS, "replicated") as nodes:
            until = trio.current_time() + 14
            async with trio.open_nursery() as nursery:
                for name in nodes.names:
                    nursery.start_soon(ask, nodes.url(name), name, 2 * RATE, until, found)
                await trio.sleep(2)
                killed = trio.current_time()
                await nodes.kill("b")
                await nodes.start("b")
                await nodes.linked()
                begun = trio.current_time()
                nodes.cut("c")
                await trio.sleep(2)
                nodes.heal()
                await nodes.linked()
                cut = Cut("c", begun, trio.current_time() + TOLD_AFTER_S)
    judged = judge(found, RATE, BURST, nodes=3, delay_s=0.05, cuts=[cut], kills=[killed])
    assert {one.node for one in found if one.sent > cut.end} == set("abc")
    assert judged.unexplained <= 0
    assert judged.refused_percent >= 90, judged
    assert judged.allowed > BURST, judged


async def test_exact_nodes_are_never_above_and_wait_for_one_that_is_gone(tmp_path: Path) -> None:
    found: list[Decision] = []
    with trio.fail_after(120):
        async with limit_nodes(tmp_path, "abc", CONTRACTS, "exact") as nodes:
            until = trio.current_time() + 10
            async with trio.open_nursery() as nursery:
                for name in nodes.names:
                    nursery.start_soon(ask, nodes.url(name), name, 2 * RATE, until, found)
                await trio.sleep(2)
                await nodes.kill("b")
                killed = trio.current_time()
                await trio.sleep(1)
                started = trio.current_time()
                await nodes.start("b")
                await nodes.linked()
                back = trio.current_time()
    judged = judge(found, RATE, BURST, nodes=3, delay_s=0.0)
    assert judged.excess <= 1, judged  # an answer's way to its client may be longer than another's
    waited = [one for one in found if killed + 0.3 < one.sent and one.answered < started]
    assert not any(one.allowed for one in waited)
    assert any(one.allowed for one in found if one.sent > back)
