"""Open requests that three nodes hold together, alone and in mixed contracts, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from limiting.replication.messages import Release
from limiting.replication.node_grants import Grant
from limiting.wire.cluster_key import number_of
from limiting.wire.codec import encode
from limiting.wire.sealed_grants import sealed
from srtm.contracts.contract import read_contract
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.limiting.limiter import Limiter
from tests.limiting.nodes.conftest import KEY, NAMES, Rig, contract, said_alike

OPEN = {"name": "open", "kind": "concurrency", "quota": 6, "expires": "60s"}
BURST = {"name": "burst", "rate": 0.001, "burst": 9}
WINDOW = {"name": "daily", "kind": "window", "quota": 12, "window": "600s", "slices": 6}


def document(*policies: dict[str, object], **others: object) -> dict[str, object]:
    return contract(**{"policies": list(policies or (OPEN,)), **others})  # type: ignore[arg-type]


async def started(rig: Rig, *policies: dict[str, object], **others: object) -> Rig:
    for name in NAMES:
        rig.start(name, "replicated", document=document(*policies, **others))
    await rig.linked()
    return rig


async def opened(rig: Rig, name: str, subject: str = "user", cost: int = 1) -> bytes:
    (grant,) = (await rig.running[name].check("api", [subject], cost)).grants
    return grant


async def left(rig: Rig, name: str, subject: str = "user") -> list[int]:
    return [policy.remaining for policy in (await rig.running[name].peek("api", subject)).policies]


async def test_at_most_the_quota_is_open_over_all_nodes_and_a_release_at_any_lets_another_in(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig)
    grants = []
    for turn in range(12):
        name = NAMES[turn % 3]
        checked = await rig.running[name].check("api", ["user"], 1)
        assert checked.allowed == (turn < 6)
        grants += checked.grants
        await trio.sleep(0.033)
    for turn, grant in enumerate(grants):
        await rig.running[NAMES[(turn + turn // 3) % 3]].release(grant)
        await trio.sleep(0.033)
        assert [await left(rig, name) for name in NAMES] == [[1]] * 3
        assert await rig.let(NAMES[(turn + 1) % 3])
        await trio.sleep(0.033)
        assert not await rig.let(NAMES[turn % 3])


async def test_verdicts_say_what_local_ones_say(autojump_clock: MockClock, rig: Rig) -> None:
    what = document(WINDOW, OPEN, {"name": "burst", "rate": 0.01, "burst": 20})
    await started(rig, WINDOW, OPEN, {"name": "burst", "rate": 0.01, "burst": 20})
    node = rig.running["a"]
    local = Limiter(clocks=node._clocks)
    local.put(read_contract(what))
    grants = []
    for wait_s, cost in [(0, 2), (10, 3), (0, 3), (20, 1), (0, 1), (0, 7), (31, 2), (20, 2), (70, 4), (0, 9)]:
        await trio.sleep(wait_s)
        said = await said_alike(node, local, cost)
        if said[0].grant is not None and said[1].grant is not None:
            grants.append((said[0].grant, said[1].grant))
        if len(grants) == 3:
            here, there = grants.pop(1)
            local.release(here)
            await node.release(there)


async def test_a_check_takes_of_all_kinds_or_of_none(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, BURST, OPEN, WINDOW)
    grants = [await opened(rig, "a") for _ in range(6)]
    assert await left(rig, "a") == [3, 0, 6]
    await trio.sleep(0.1)
    refused = (await rig.running["b"].check("api", ["user"], 1)).decisive
    assert refused.violated == ("open",)
    assert await left(rig, "b") == [3, 0, 6]
    await rig.running["c"].release(grants[0])
    await trio.sleep(0.1)
    assert await left(rig, "b") == [3, 1, 6]
    await rig.running["b"].correct(grants[1], 4)
    await trio.sleep(11)
    assert [await left(rig, name) for name in NAMES] == [[0, 1, 3]] * 3


async def test_a_request_is_released_once_at_whichever_node(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await opened(rig, "a")
    said: list[str] = []

    async def releases(name: str) -> None:
        try:
            await rig.running[name].release(grant)
            said.append("released")
        except BadInput as error:
            said.append(error.rule)

    async with trio.open_nursery() as nursery:
        for name in NAMES:
            for _ in range(3):
                nursery.start_soon(releases, name)
    assert sorted(set(said)) == ["is of no open request: it was released before, or has expired", "released"]
    assert said.count("released") == 1


async def test_what_nobody_releases_expires_at_all_nodes(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await opened(rig, "a")
    await trio.sleep(30)
    for _ in range(5):
        await opened(rig, "b")
    await trio.sleep(1)
    assert [await left(rig, name) for name in NAMES] == [[0]] * 3
    await trio.sleep(31)
    assert [await left(rig, name) for name in NAMES] == [[1]] * 3
    for name in "ab":
        with pytest.raises(BadInput, match="has expired"):
            await rig.running[name].release(grant)
    await trio.sleep(60)
    assert [node.subjects() for node in rig.running.values()] == [{"api": 0}] * 3


async def test_over_http_a_check_at_one_node_is_released_at_another(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    async with rig.over_http("a") as node_a, rig.over_http("b") as node_b:
        check = {"namespace": "api", "subjects": ["user", "other"], "cost": 2}
        checked = (await node_a.post("/limit/v1/check", json=check)).json()
        assert (checked["allowed"], checked["mode"]) == (True, "replicated")
        body = {"grant": checked["grant"]}
        assert (await node_b.post("/limit/v1/release", json=body)).status_code == 204
        again = await node_a.post("/limit/v1/release", json=body)
        assert again.status_code == 400
        assert await left(rig, "a") == await left(rig, "a", "other") == [6]


async def test_what_a_dead_node_let_in_counts_until_it_is_over_and_not_for_ever(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig)
    grants = [await opened(rig, "b") for _ in range(6)]
    await trio.sleep(0.1)
    await rig.kill("b")
    with pytest.raises(Unavailable, match="node b, which decided the check"):
        await rig.running["a"].release(grants[0])
    await trio.sleep(30)
    rig.start("b", "replicated", first=False, document=document())
    assert await rig.taken("b", 3) == 0
    await rig.linked()
    assert [await rig.taken(name, 3) for name in NAMES] == [0] * 3
    for name in NAMES:
        with pytest.raises(BadInput, match="earlier start of node b"):
            await rig.running[name].release(grants[0])
    await trio.sleep(28.5)
    assert [await rig.taken(name, 2) for name in "ac"] == [2, 2]
    await trio.sleep(35)
    assert await left(rig, "b") == [2], "it heard of what it had let in half a minute later"


async def test_after_a_snapshot_a_node_knows_what_is_open_at_all(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, OPEN, BURST)
    kept = [await opened(rig, name) for name in ("a", "c", "b")]
    await trio.sleep(11)  # what is no news is told after ten seconds
    await rig.kill("b")
    rig.start("b", "replicated", first=False, document=document(OPEN, BURST))
    assert await left(rig, "b") == [0, 0]
    await rig.linked()
    assert await left(rig, "b") == [3, 6]
    await rig.running["b"].release(kept[0])
    await trio.sleep(11)
    assert [await left(rig, name) for name in NAMES] == [[4, 6]] * 3


async def test_nodes_that_were_cut_off_hear_of_each_other_and_let_nothing_in_beyond_the_quota(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig)
    await rig.split("c", "ab")
    here = [await opened(rig, "a") for _ in range(4)]
    there = [await opened(rig, "c") for _ in range(5)]
    with pytest.raises(Unavailable, match="cannot be reached"):
        await rig.running["c"].release(here[0])
    await rig.heal()
    assert [await left(rig, name) for name in NAMES] == [[0]] * 3
    for grant in there[:3]:
        await rig.running["c"].release(grant)
    await trio.sleep(0.1)
    assert [await rig.taken(name, 2) for name in NAMES] == [0] * 3
    await rig.running["b"].release(here[0])
    await trio.sleep(0.1)
    assert await rig.taken("c", 2) == 1


async def test_a_reset_ends_what_is_open_at_all_nodes(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, OPEN, BURST)
    for name in "aabbc":
        await opened(rig, name)
        await trio.sleep(0.05)
    await rig.running["b"].reset("api", "user")
    await trio.sleep(12)
    assert [await left(rig, name) for name in NAMES] == [[6, 9]] * 3


async def test_a_changed_quota_holds_at_once(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    for _ in range(5):
        await opened(rig, "a")
    await trio.sleep(0.1)
    for name in NAMES:
        rig.running[name].put(read_contract(document({**OPEN, "quota": 7, "expires": "20s"})))
    assert [await left(rig, name) for name in NAMES] == [[2]] * 3
    await trio.sleep(20)
    assert [await left(rig, name) for name in NAMES] == [[7]] * 3


async def test_a_flood_of_new_subjects_is_bounded_at_every_node(autojump_clock: MockClock, rig: Rig) -> None:
    for name in NAMES:
        rig.start(name, "replicated", document=document(), most_subjects=300 if name == "a" else 20)
    await rig.linked()
    kept = await opened(rig, "b", "known")
    for number in range(600):
        await rig.let("a", f"new-{number}")
    await trio.sleep(1)
    assert all(node.subjects()["api"] <= 300 + 1_024 for node in rig.running.values())
    assert all(rig.running[name].subjects()["api"] <= 20 + 1_024 for name in "bc")
    assert (await rig.running["c"].peek("api", "one-more")).shared
    await rig.running["a"].release(kept)
    await trio.sleep(75)
    assert [await left(rig, name, "known") for name in NAMES] == [[6]] * 3


async def test_shadow_contracts_open_nothing_beyond_the_quota(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, shadow=True)
    said = [await rig.running["a"].check("api", ["user"], 1) for _ in range(8)]
    assert [len(each.grants) for each in said] == [1] * 6 + [0] * 2
    assert all(each.allowed for each in said)


async def test_wrong_releases_say_what_is_wrong(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await opened(rig, "a")
    for wrong in (bytes([grant[0] ^ 1]) + grant[1:], grant[:-1] + bytes([grant[-1] ^ 1]), bytes(48), b""):
        with pytest.raises(BadInput, match="none of this limiter"):
            await rig.running["a"].release(wrong)
    never = Grant(number_of("a"), grant[4:12], bytes(16), 1, 2**62)
    with pytest.raises(BadInput, match="earlier start of node a"):
        await rig.running["b"].release(sealed(never, KEY))
    for name in NAMES:
        rig.running[name].remove("api", "*")
        with pytest.raises(NotFound, match="contract"):
            await rig.running[name].release(grant)
    with pytest.raises(BadInput, match=r"on_partition.*go on"):
        rig.running["a"].put(read_contract(document(on_partition="share")))
    with pytest.raises(BadInput, match=r"policies\[0\]"):
        rig.running["a"].put(read_contract(document(mode="exact")))


async def test_a_peer_that_asks_to_release_what_is_none_of_this_node_ends_the_link(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig)
    mesh, sender = rig.running["a"].mesh, rig.running["b"].mesh
    assert mesh is not None
    assert sender is not None
    sender.send("a", next(iter(rig.running["a"]._tags)) + encode(Release(0, 1, bytes(48))))
    await trio.sleep(0.05)
    assert not mesh.is_up("b")
