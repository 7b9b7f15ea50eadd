"""Corrections on several nodes in virtual time: each counts once, at whichever node it is asked for."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from limiting.nodes import corrections
from limiting.replication.messages import Corrected, Correction
from limiting.replication.node_grants import Grant
from limiting.wire.cluster_key import ClusterKey, number_of
from limiting.wire.codec import encode
from limiting.wire.sealed_grants import sealed
from srtm.contracts.contract import Mode, read_contract
from srtm.errors import BadInput, NotFound, Unavailable
from tests.limiting.nodes.conftest import KEY, NAMES, Rig, contract

FLUSHED_S = 11  # what is no news is told after ten seconds


async def started(rig: Rig, names: str = NAMES, mode: Mode = "replicated", **document: object) -> None:
    peers = ",".join(f"{name}=host-{name}:4197" for name in names)
    for name in names:
        rig.start(name, mode, document=contract(**{"rate": 0.001, **document}), peers=peers)  # type: ignore[arg-type]
    await rig.linked()


async def granted(rig: Rig, name: str, cost: int = 4, subject: str = "user") -> bytes:
    (grant,) = (await rig.running[name].check("api", [subject], cost)).grants
    return grant


async def left(rig: Rig, name: str) -> int:
    return (await rig.running[name].peek("api", "user")).policies[0].remaining


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("asked", ["a", "b"])
async def test_a_correction_at_any_node_counts_once_at_all(
    autojump_clock: MockClock, rig: Rig, names: str, asked: str
) -> None:
    await started(rig, names)
    grant = await granted(rig, "a")
    await rig.running[asked].correct(grant, 9)
    assert await left(rig, "a") == 3
    for name in names:
        with pytest.raises(BadInput, match=r"grant.*was used before"):
            await rig.running[name].correct(grant, 9)
    await trio.sleep(FLUSHED_S)
    assert [await left(rig, name) for name in names] == [3] * len(names)


async def test_over_http_a_check_at_one_node_is_corrected_at_another(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    async with rig.over_http("a") as node_a, rig.over_http("b") as node_b:
        check = {"namespace": "api", "subjects": ["user", "other"], "cost": 4}
        checked = (await node_a.post("/limit/v1/check", json=check)).json()
        assert (checked["allowed"], checked["mode"]) == (True, "replicated")
        body = {"grant": checked["grant"], "cost": 7}
        assert (await node_b.post("/limit/v1/correct", json=body)).status_code == 204
        for node in (node_a, node_b):
            again = await node.post("/limit/v1/correct", json=body)
            assert (again.status_code, again.json()["rule"]) == (400, "was used before")
        shown = (await node_a.post("/limit/v1/check", json={**check, "peek": True})).json()
        assert [each["policies"][0]["remaining"] for each in shown["subjects"]] == [5, 5]
        await rig.kill("a")
        unreachable = await node_b.post("/limit/v1/correct", json=body)
        assert (unreachable.status_code, "node a" in unreachable.json()["detail"]) == (503, True)


async def test_of_corrections_at_all_nodes_at_once_one_counts(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await granted(rig, "b")
    said: list[str] = []

    async def corrects(name: str) -> None:
        try:
            await rig.running[name].correct(grant, 6)
            said.append("taken")
        except BadInput as error:
            said.append(error.rule)

    async with trio.open_nursery() as nursery:
        for name in NAMES:
            for _ in range(3):
                nursery.start_soon(corrects, name)
    assert sorted(said) == ["taken"] + ["was used before"] * 8
    await trio.sleep(FLUSHED_S)
    assert [await left(rig, name) for name in NAMES] == [6] * 3


async def test_less_is_given_back_and_no_more_than_was_taken(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, rate=1)
    grant = await granted(rig, "a", 10)
    await rig.running["b"].correct(grant, 4)
    assert await left(rig, "a") == 8
    grant = await granted(rig, "a", 4)
    await trio.sleep(30)  # all has come back by itself
    await rig.running["a"].correct(grant, 0)
    await trio.sleep(FLUSHED_S)
    assert [await left(rig, name) for name in NAMES] == [12] * 3
    assert sum([await rig.let("c", cost=6) for _ in range(3)]) == 2


async def test_what_time_has_paid_is_not_given_back_of_what_is_taken_later(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, rate=0.4)
    grant = await granted(rig, "a")
    await trio.sleep(FLUSHED_S)
    await rig.split("b", "ac")
    await rig.running["a"].correct(grant, 0)
    assert await rig.let("b", cost=10)
    since = trio.current_time()
    await rig.heal()
    await trio.sleep(FLUSHED_S)
    assert await left(rig, "b") <= 2 + 0.4 * (trio.current_time() - since)


async def test_a_bucket_falls_below_zero_by_its_debt_at_most(autojump_clock: MockClock, rig: Rig) -> None:
    policies = [{"name": "burst", "rate": 1, "burst": 12, "max_debt": 5}]
    await started(rig, policies=policies)
    await rig.running["c"].correct(await granted(rig, "a"), 2**32 - 1)
    await trio.sleep(0.1)
    for name in NAMES:
        verdict = await rig.running[name].peek("api", "user")
        assert 5.8e9 <= (verdict.wait_ns or 0) <= 6e9, name
    await trio.sleep(6)
    assert await rig.let("b")


@pytest.mark.parametrize("mode", ["replicated", "auto"])
async def test_each_policy_bounds_its_own_debt(autojump_clock: MockClock, rig: Rig, mode: Mode) -> None:
    policies = [
        {"name": "few", "rate": 1, "burst": 4, "max_debt": 0},
        {"name": "many", "rate": 0.001, "burst": 100},
    ]
    await started(rig, mode=mode, policies=policies)
    await rig.running["b"].correct(await granted(rig, "a"), 30)
    looked = (await rig.running["a"].peek("api", "user")).policies
    assert [said.remaining for said in looked] == [0, 70]


async def test_a_node_that_started_again_refuses_what_it_has_forgotten(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    used, unused = await granted(rig, "a", 2), await granted(rig, "a", 2)
    await rig.running["b"].correct(used, 1)
    await trio.sleep(FLUSHED_S)
    await rig.kill("a")
    with pytest.raises(Unavailable, match=r"node a, which decided the check, .*cannot be reached"):
        await rig.running["b"].correct(unused, 5)
    rig.start("a", "replicated", first=False, document=contract(rate=0.001))
    await rig.linked()
    for name in NAMES:
        for grant in (used, unused):
            with pytest.raises(BadInput, match="earlier start of node a"):
                await rig.running[name].correct(grant, 5)
    assert [await left(rig, name) for name in NAMES] == [9] * 3
    await rig.running["b"].correct(await granted(rig, "a", 2), 3)
    assert await left(rig, "a") == 6


async def test_a_node_that_is_cut_off_takes_its_corrections_and_others_say_that_it_is(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig)
    grant = await granted(rig, "c")
    await rig.split("c", "ab")
    with pytest.raises(Unavailable, match="node c"):
        await rig.running["a"].correct(grant, 6)
    await rig.running["c"].correct(grant, 6)
    await rig.heal()
    await trio.sleep(FLUSHED_S)
    assert [await left(rig, name) for name in NAMES] == [6] * 3


async def test_a_node_that_says_nothing_is_waited_for_for_a_second(
    autojump_clock: MockClock, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(rig)
    grant = await granted(rig, "a")
    monkeypatch.setattr(rig.running["a"], "message", lambda name, message: None)
    began = trio.current_time()
    with pytest.raises(Unavailable, match="has not answered within 1 s"):
        await rig.running["b"].correct(grant, 6)
    assert trio.current_time() - began == pytest.approx(corrections.ANSWERED_WITHIN_S)


async def test_forged_and_foreign_grants_change_nothing(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await granted(rig, "a")
    foreign = sealed(Grant(number_of("a"), bytes(8), bytes(16), 4, 1), ClusterKey(b"another" * 5))
    local = rig.running["b"].limiter
    local.put(read_contract({**contract(), "subject": "local", "mode": "local"}))
    of_b = local.check("api", "local").grant
    assert of_b is not None
    for wrong in (bytes([grant[0] ^ 1]) + grant[1:], grant[:-1] + bytes([grant[-1] ^ 1]), foreign, of_b, bytes(48)):
        with pytest.raises(BadInput, match="none of this limiter"):
            await rig.running["a"].correct(wrong, 9)
    assert [await left(rig, name) for name in "a"] == [8]
    with pytest.raises(BadInput, match="cost"):
        await rig.running["a"].correct(grant, -1)
    with pytest.raises(BadInput, match="nothing to release"):
        await rig.running["a"].release(grant)
    stranger = Grant(number_of("z"), grant[4:12], bytes(16), 4, 1)
    with pytest.raises(BadInput, match="not in this node's list of peers"):
        await rig.running["a"].correct(sealed(stranger, KEY), 9)
    await rig.running["a"].correct(grant, 5)


async def test_a_grant_is_too_old_after_a_minute(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await granted(rig, "a")
    await trio.sleep(60.1)
    for name in "ab":
        with pytest.raises(BadInput, match="older than 60 s"):
            await rig.running[name].correct(grant, 6)


async def test_the_grant_of_a_contract_that_is_gone_is_refused(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    grant = await granted(rig, "a")
    for name in "ab":
        rig.running[name].remove("api", "*")
        with pytest.raises(NotFound, match="contract"):
            await rig.running[name].correct(grant, 6)


@pytest.mark.parametrize("mode", ["exact", "auto"])
@pytest.mark.parametrize("asked", ["a", "b"])
async def test_in_the_other_modes_more_is_taken_once_at_any_node_too(
    autojump_clock: MockClock, rig: Rig, mode: Mode, asked: str
) -> None:
    await started(rig, mode=mode, burst=40)
    grant = await granted(rig, "a", 2)
    await rig.running[asked].correct(grant, 9)
    for name in NAMES:
        with pytest.raises(BadInput, match=r"grant.*was used before"):
            await rig.running[name].correct(grant, 9)
    await trio.sleep(FLUSHED_S)
    assert [await left(rig, name) for name in NAMES] == [31] * 3


async def test_exact_takes_more_afterwards_though_the_owner_decided_and_gives_nothing_back(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig, mode="exact", burst=40)
    for name, subject in ((name, f"user:{number}") for number in range(4) for name in NAMES):
        peeked = (await rig.running[name].peek("api", subject)).policies[0].remaining
        grant = await granted(rig, name, 10, subject)  # too much to decide alone
        await rig.running["b"].correct(grant, 12 if name == "a" else 3)
        await trio.sleep(0.1)
        after = [(await rig.running[each].peek("api", subject)).policies[0].remaining for each in NAMES]
        assert after == [peeked - (12 if name == "a" else 10)] * 3
        await rig.running["a"].reset("api", subject)
        await trio.sleep(0.1)
        assert (await rig.running["c"].peek("api", subject)).policies[0].remaining == 40


async def test_auto_gives_back_what_was_not_used(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, mode="auto")
    await rig.running["c"].correct(await granted(rig, "a", 10), 4)
    await trio.sleep(FLUSHED_S)
    assert [await left(rig, name) for name in NAMES] == [8] * 3


@pytest.mark.parametrize("mode", ["exact", "auto"])
async def test_in_the_other_modes_a_bucket_falls_below_zero_by_its_debt_at_most(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    policies = [{"name": "burst", "rate": 1, "burst": 12, "max_debt": 5}]
    await started(rig, mode=mode, policies=policies)
    await rig.running["c"].correct(await granted(rig, "a", 1), 2**32 - 1)
    await trio.sleep(0.1)
    for name in NAMES:
        verdict = await rig.running[name].peek("api", "user")
        assert 5.8e9 <= (verdict.wait_ns or 0) <= 6e9, name
        assert not await rig.let(name)
    await trio.sleep(16)
    assert await rig.let("b")


async def test_only_what_took_tokens_has_a_grant_and_nothing_of_the_thesis_has(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig, shadow=True)
    node = rig.running["a"]
    assert (await node.check("api", ["user"], 1, peek=True)).grants == []
    assert len((await node.check("api", ["user", "other"], 12)).grants) == 2
    shadowed = await node.check("api", ["user"], 12)
    assert (shadowed.allowed, shadowed.grants) == (True, [])
    modes: tuple[Mode, ...] = ("counter", "queue")
    for mode in modes:
        node.put(read_contract({**contract(), "subject": f"{mode}:*", "mode": mode}))
        said = (await node.check("api", [f"{mode}:1"], 1)).decisive
        assert (said.allowed, said.grant) == (True, None)
        with pytest.raises(BadInput, match="takes by checks only"):
            await node.ban("api", f"{mode}:1")


@pytest.mark.parametrize(
    "frame",
    [
        Correction(0, 1, bytes(48), 3),
        Correction(0, 1, sealed(Grant(number_of("c"), bytes(8), bytes(16), 4, 1), KEY), 3),
        Correction(0, 1, sealed(Grant(number_of("a"), bytes(8), bytes(16), 4, 1), KEY), 3),
        Corrected(0, 1, 9),
    ],
    ids=["forged", "of another node", "of another contract", "an outcome that there is not"],
)
async def test_a_peer_that_asks_for_what_cannot_be_ends_the_link(
    autojump_clock: MockClock, rig: Rig, frame: object
) -> None:
    await started(rig)
    mesh, sender = rig.running["a"].mesh, rig.running["b"].mesh
    assert mesh is not None
    assert sender is not None
    sender.send("a", next(iter(rig.running["a"]._tags)) + encode(frame))
    await trio.sleep(0.05)
    assert not mesh.is_up("b")


async def test_an_answer_that_nobody_waits_for_is_no_harm(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig)
    mesh, sender = rig.running["a"].mesh, rig.running["b"].mesh
    assert mesh is not None
    assert sender is not None
    sender.send("a", next(iter(rig.running["a"]._tags)) + encode(Corrected(0, 77, 0)))
    await trio.sleep(0.05)
    assert mesh.is_up("b")
