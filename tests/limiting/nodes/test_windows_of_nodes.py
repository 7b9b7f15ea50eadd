"""Windows that three nodes hold together, alone and beside a bucket, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from srtm.contracts.contract import read_contract
from srtm.limiting.limiter import Limiter
from tests.limiting.nodes.conftest import NAMES, Rig, contract, said_alike

WINDOW = {"name": "daily", "kind": "window", "quota": 12, "window": "600s", "slices": 6, "aligned": True}
BURST = {"name": "burst", "rate": 100, "burst": 100}


def document(*policies: dict[str, object], **others: object) -> dict[str, object]:
    return contract(**{"policies": list(policies or (WINDOW,)), **others})  # type: ignore[arg-type]


async def started(rig: Rig, what: dict[str, object]) -> Rig:
    for name in NAMES:
        rig.start(name, "replicated", document=what)
    await rig.linked()
    return rig


async def left(rig: Rig, name: str) -> list[int]:
    return [policy.remaining for policy in (await rig.running[name].peek("api", "user")).policies]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("policies", [(WINDOW,), (BURST, WINDOW), (WINDOW, BURST)])
async def test_what_one_node_let_through_the_others_refuse(
    autojump_clock: MockClock, rig: Rig, policies: tuple[dict[str, object], ...], weighted: bool
) -> None:
    await started(rig, document(*({**each, "weighted": weighted} if "kind" in each else each for each in policies)))
    passed = 0
    for _ in range(40):
        for name in NAMES:
            passed += await rig.let(name)
            await trio.sleep(0.033)
    assert passed == 12


async def test_a_check_takes_of_both_kinds_or_of_none(autojump_clock: MockClock, rig: Rig) -> None:
    burst = {"name": "burst", "rate": 0.001, "burst": 3}
    await started(rig, document(WINDOW, burst))
    assert await rig.taken("a", 5) == 3
    assert await left(rig, "a") == [9, 0]
    await trio.sleep(0.5)
    assert await rig.taken("b", 5) == 0
    said = (await rig.running["b"].check("api", ["user"], 1)).decisive
    assert said.violated == ("burst",)


@pytest.mark.parametrize("weighted", [True, False])
async def test_verdicts_say_what_local_ones_say(autojump_clock: MockClock, rig: Rig, weighted: bool) -> None:
    what = document({**WINDOW, "weighted": weighted}, {"name": "burst", "rate": 0.01, "burst": 20})
    await started(rig, what)
    node = rig.running["a"]
    local = Limiter(clocks=node._clocks)
    local.put(read_contract(what))
    for wait_s, cost in [(0, 3), (70, 4), (130, 4), (0, 4), (0, 13), (250, 2), (111, 5), (90, 5), (450, 1)]:
        await trio.sleep(wait_s)
        said = await said_alike(node, local, cost)
    assert said[1].mode == "replicated"


async def test_a_node_that_starts_again_lets_nothing_through_that_it_forgot(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig, document())
    passed = await rig.taken("b", 20)
    await trio.sleep(0.5)
    await rig.kill("b")
    rig.start("b", "replicated", first=False, document=document())
    assert await rig.taken("b", 3) == 0
    await rig.linked()
    passed += await rig.taken("b", 20)
    assert passed == 12


async def test_after_a_snapshot_a_node_knows_what_is_left(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, document(WINDOW, BURST))
    assert await rig.taken("a", 4) == 4
    await trio.sleep(11)  # what is no news is told after ten seconds
    await rig.kill("b")
    rig.start("b", "replicated", first=False, document=document(WINDOW, BURST))
    assert await left(rig, "b") == [0, 0]
    await rig.linked()
    assert await left(rig, "b") == [8, 100]


async def test_a_node_that_was_cut_off_tells_what_it_took(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, document())
    await rig.split("c", "ab")
    assert [await rig.taken("a", 7), await rig.taken("c", 4)] == [7, 4]
    await trio.sleep(40)
    await rig.heal()
    assert [await left(rig, name) for name in NAMES] == [[1]] * 3


async def test_a_changed_window_holds_at_once_and_mints_nothing(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, document())
    assert await rig.taken("a", 10) == 10
    await trio.sleep(1)
    for name in NAMES:
        rig.running[name].put(read_contract(document({**WINDOW, "quota": 14, "window": "1d", "slices": 24})))
    await trio.sleep(1)
    assert await rig.taken("b", 30) == 4
    await trio.sleep(1)
    assert await rig.taken("c", 1) == 0


async def test_bans_hold_for_a_window_and_resets_reach_all_nodes(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, document(WINDOW, BURST))
    await rig.running["a"].ban("api", "user")
    await trio.sleep(500)
    assert await rig.taken("b", 5) == 0
    await rig.running["a"].reset("api", "user")
    await trio.sleep(12)
    assert await rig.taken("c", 5) == 5


async def test_subjects_are_in_memory_until_their_windows_are_over(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, document())
    await rig.taken("a", 2)
    await trio.sleep(11)
    assert [node.subjects() for node in rig.running.values()] == [{"api": 1}] * 3
    await trio.sleep(720)
    assert [node.subjects() for node in rig.running.values()] == [{"api": 0}] * 3


async def test_nodes_that_have_another_kind_of_contract_do_not_hear_of_it_and_keep_their_links(
    autojump_clock: MockClock, rig: Rig
) -> None:
    """As one of an earlier version does, which refuses the window and goes on with what it had."""
    for name in "ab":
        rig.start(name, "replicated", document=document())
    rig.start("c", "replicated", document=contract(rate=0.001))
    await rig.linked()
    await trio.sleep(2)  # a node that starts waits for its peers for three seconds
    assert await rig.taken("a", 20) == 12
    await trio.sleep(11)
    assert await rig.taken("b", 5) == 0
    assert await rig.taken("c", 20) == 12
    assert all(state.connected for node in rig.running.values() for state in node.states())
