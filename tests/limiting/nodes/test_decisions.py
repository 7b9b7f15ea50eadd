"""Three nodes in virtual time: what each mode lets through, while nodes are killed, cut off and come back."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from limiting.nodes.decisions import Decisions
from limiting.replication.auto import Auto
from limiting.wire.cluster_key import ClusterKey
from srtm.contracts.contract import Mode, read_contract
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.limiting.limiter import Limiter
from tests.limiting.nodes.conftest import KEY, NAMES, Rig, contract

WINDOW = {"name": "daily", "kind": "window", "quota": 12, "window": "600s", "slices": 6, "weighted": False}
LARGE = {"name": "large", "rate": 100, "burst": 1_000, "max_debt": 300}
MODES: tuple[Mode, ...] = ("replicated", "exact", "auto", "counter", "queue")


async def started(rig: Rig, mode: Mode, document: dict[str, object] | None = None) -> Rig:
    for name in NAMES:
        rig.start(name, mode, document=document)
    await rig.linked()
    return rig


@pytest.mark.parametrize("mode", MODES)
async def test_what_one_node_let_through_the_others_refuse(autojump_clock: MockClock, rig: Rig, mode: Mode) -> None:
    await started(rig, mode)
    passed = 0
    for _ in range(40):
        for name in NAMES:
            passed += await rig.let(name)
            await trio.sleep(0.033)
    burst_and_rate = 12 + 40 * 0.1
    late = {"exact": 0, "counter": 12, "queue": 12}.get(mode, 2)
    assert 0.6 * burst_and_rate <= passed <= burst_and_rate + late


async def test_exact_is_never_above_though_all_ask_at_once(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "exact", contract(rate=0.001))
    passed: list[bool] = []

    async def asks(name: str) -> None:
        passed.append(await rig.let(name))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            for name in NAMES:
                nursery.start_soon(asks, name)
    assert 6 <= sum(passed) <= 12


async def test_exact_waits_for_a_node_that_is_gone_until_it_is_removed(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "exact")
    await rig.kill("c")
    await trio.sleep(1)
    with pytest.raises(Unavailable, match="cannot reach c"):
        await rig.let("a")
    for name in "ab":
        rig.running[name].remove_node("c")
    await trio.sleep(12)
    assert await rig.let("a")
    rig.start("c", "exact", first=False)
    await rig.linked()
    await trio.sleep(12)
    assert [await rig.let(name) for name in NAMES] == [True] * 3


@pytest.mark.parametrize("mode", ["replicated", "auto", "exact"])
@pytest.mark.parametrize("late", NAMES)
async def test_a_node_that_comes_later_holds_the_same_limit_once_it_is_found(
    autojump_clock: MockClock, rig: Rig, mode: Mode, late: str
) -> None:
    document = contract(rate=0.001)
    early = [name for name in NAMES if name != late]
    for name in early:
        rig.start(name, mode, document=document, peers=",".join(f"{each}=host-{each}:4197" for each in early))
    await rig.linked()
    passed = await rig.taken(early[0], 4)
    rig.start(late, mode, first=False, document=document)
    await trio.sleep(5)
    for name in early:
        rig.running[name].meet({each: f"host-{each}:4197" for each in NAMES})
    await rig.linked()
    assert [state.name for state in rig.running[early[0]].states()] == sorted([early[1], late])
    for name in (late, *early):
        passed += await rig.taken(name, 12)
        await trio.sleep(0.5)
    least = 4 if mode == "exact" else 10  # an owner that is new counts its subjects as used up
    assert least <= passed <= 12


async def test_a_list_that_cannot_be_one_of_nodes_changes_nothing(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated")
    before = rig.running["a"].states()
    with pytest.raises(BadInput, match="peers"):
        rig.running["a"].meet({"d": "nowhere"})
    with pytest.raises(BadInput, match="must be 2 to 64 nodes"):
        rig.running["a"].meet({f"n{number}": "h:1" for number in range(64)})
    assert rig.running["a"].states() == before
    rig.running["a"].meet({"b": "elsewhere:4197"})
    assert [state.address for state in rig.running["a"].states()] == ["elsewhere:4197", "host-c:4197"]


async def test_a_node_that_is_connected_cannot_be_removed(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "exact")
    with pytest.raises(BadInput, match="must have stopped"):
        rig.running["a"].remove_node("b")
    with pytest.raises(NotFound):
        rig.running["a"].remove_node("z")


@pytest.mark.parametrize("mode", ["replicated", "auto", "exact"])
async def test_a_node_that_starts_again_lets_nothing_through_that_it_forgot(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    await started(rig, mode, contract(rate=0.001))
    passed = await rig.taken("b", 20)
    await trio.sleep(0.5)
    await rig.kill("b")
    rig.start("b", mode, first=False, document=contract(rate=0.001))
    passed += await rig.taken("b", 3) if mode != "exact" else 0
    await rig.linked()
    passed += await rig.taken("b", 20)
    assert 6 <= passed <= 12


async def test_after_a_snapshot_a_node_knows_what_is_left(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated", contract(rate=0.001))
    assert await rig.taken("a", 4) == 4
    await trio.sleep(11)  # what is no news is told after ten seconds
    await rig.kill("b")
    rig.start("b", "replicated", first=False, document=contract(rate=0.001))
    await rig.linked()
    assert (await rig.running["b"].peek("api", "user")).policies[0].remaining == 8


async def test_parts_of_a_partition_share_one_contract(autojump_clock: MockClock, rig: Rig) -> None:
    document = contract(rate=0.6, burst=12, on_partition="share")
    await started(rig, "replicated", document)
    await rig.taken("a", 20)
    await rig.split("c", "ab")
    await trio.sleep(25)  # two flushes until it is noticed
    passed = 0
    for _ in range(100):
        for name in NAMES:
            passed += await rig.let(name)
        await trio.sleep(0.5)
    assert passed <= 12 + 0.6 * 50 + 1  # a and b take at one instant (law L4)
    await rig.heal()
    await trio.sleep(40)  # each has heard of what the others took
    assert all([await rig.let(name) for name in NAMES])


async def test_a_part_that_goes_on_lets_the_whole_contract_through_and_hears_of_the_rest(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await started(rig, "replicated", contract(rate=0.001))
    await rig.split("c", "ab")
    assert [await rig.taken("a", 20), await rig.taken("c", 20)] == [12, 12]
    await rig.heal()
    await trio.sleep(2)
    assert (await rig.running["b"].peek("api", "user")).policies[0].remaining == 0


async def test_a_node_that_was_cut_off_tells_at_once_what_it_took(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated", contract(rate=0.001))
    await rig.split("c", "ab")
    assert await rig.taken("c", 20) == 12
    b = rig.running["b"]
    assert b.mesh is not None
    assert (await b.peek("api", "user")).policies[0].remaining == 12
    rig.cut.clear()
    with trio.fail_after(3):
        while not b.mesh.is_up("c"):  # noqa: ASYNC110 - the mesh tells nobody but its own
            await trio.sleep(0.001)
    await trio.sleep(0.01)
    assert (await b.peek("api", "user")).policies[0].remaining == 0


@pytest.mark.parametrize("mode", ["replicated", "auto"])
async def test_nodes_of_a_new_cluster_let_nothing_through_before_they_hear_of_each_other(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    document = contract(rate=0.001)
    passed = 0
    for name in NAMES:
        rig.start(name, mode, document=document)
        passed += sum([await rig.taken(each, 12) for each in rig.running])
    assert passed == 0
    await rig.linked()
    for name in NAMES:
        passed += await rig.taken(name, 12)
        await trio.sleep(0.1)
    assert passed == 12


@pytest.mark.parametrize("mode", ["replicated", "auto"])
async def test_where_one_of_a_new_cluster_is_missing_the_others_wait_for_three_seconds_and_tell_it_when_it_comes(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    document = contract(rate=0.001)
    for name in "ab":
        rig.start(name, mode, document=document)
    await trio.sleep(2.9)
    assert [await rig.taken(name, 2) for name in "ab"] == [0, 0]
    early = (await rig.running["a"].check("api", ["user"], 1)).decisive, await rig.running["a"].peek("api", "user")
    for said in early:
        assert 0 < (said.wait_ns or 0) <= 10**8
        assert said.policies[0].wait_ns == said.wait_ns
    assert (await rig.running["a"].check("api", ["user"], 13)).decisive.wait_ns is None, "never"
    await trio.sleep(0.2)
    passed = await rig.taken("a", 7)
    await trio.sleep(0.1)
    passed += await rig.taken("b", 20)
    assert passed == 12
    await trio.sleep(60)
    rig.start("c", mode, document=document)
    assert await rig.taken("c", 12) == 0
    await rig.linked()
    assert await rig.taken("c", 12) == 0


async def test_without_the_clusters_key_no_link_opens(autojump_clock: MockClock, rig: Rig) -> None:
    rig.keys["c"] = ClusterKey(b"another key, of another cluster")
    await started(rig, "replicated")
    states = {state.name: state.connected for state in rig.running["a"].states()}
    assert states == {"b": True, "c": False}


async def test_a_message_that_cannot_be_ends_the_link_which_comes_back(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated")
    mesh, sender = rig.running["a"].mesh, rig.running["b"].mesh
    assert mesh is not None
    assert sender is not None
    tag = next(iter(rig.running["a"]._tags))
    sender.send("a", tag + b"\xff")
    sender.send("a", b"a contract that is not there")
    await trio.sleep(0.05)
    assert not mesh.is_up("b")
    await rig.linked()
    assert mesh.is_up("b")


async def test_a_link_that_says_nothing_is_down(
    autojump_clock: MockClock, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(rig, "replicated")
    monkeypatch.setattr("limiting.nodes.mesh.PING_S", 100)
    mesh = rig.running["a"].mesh
    assert mesh is not None
    seen = []
    for _ in range(600):
        await trio.sleep(0.01)
        seen.append(mesh.is_up("b"))
    assert False in seen


@pytest.mark.parametrize("mode", ["replicated", "exact", "auto"])
async def test_where_subjects_start_empty_new_ones_get_their_rate_and_no_burst(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    document = contract(rate=0.1, burst=12, starts="empty")
    await started(rig, mode, document)
    passed = 0
    begun = trio.current_time()
    assert (await rig.running["a"].peek("api", "user")).policies[0].remaining == 0
    for _ in range(150):
        for name in NAMES:
            passed += await rig.let(name)
            assert passed <= 0.1 * (trio.current_time() - begun) + 1e-6
            await trio.sleep(0.3)
    assert passed >= 5
    if mode == "replicated":
        before = (await rig.running["c"].peek("api", "user")).policies[0].remaining
        await trio.sleep(50)
        await rig.kill("b")
        rig.start("b", mode, first=False, document=document)
        await rig.linked()
        left = [(await rig.running[name].peek("api", "user")).policies[0].remaining for name in NAMES]
        assert left[1] >= left[2] - 1 >= before + 3, "to a node that starts again no subject of others is new"
    for name in NAMES:
        rig.running[name].put(read_contract(contract(rate=0.1, burst=12)))
    assert await rig.let("a", "another", 2)


@pytest.mark.parametrize("mode", ["replicated", "exact", "auto"])
async def test_a_changed_contract_holds_at_once_and_mints_nothing(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    await started(rig, mode, contract(rate=0.001, burst=12))
    used = await rig.taken("a", 12)
    await trio.sleep(1)
    for name in NAMES:
        rig.running[name].put(read_contract(contract(rate=0.001, burst=24)))
    await trio.sleep(1)
    assert used + await rig.taken("b", 30) <= 24
    for name in NAMES:
        rig.running[name].put(read_contract(contract(rate=0.001, burst=3)))
    assert await rig.taken("a", 3) == 0


async def test_a_contract_that_is_put_while_nodes_run_begins_full(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated")
    for name in NAMES:
        rig.running[name].put(read_contract(contract(rate=0.001, subject="new:*")))
        await trio.sleep(0.3)
    assert await rig.taken("a", 20, "new:1") == 12
    await trio.sleep(2)
    assert await rig.taken("c", 5, "new:1") == 0
    rig.running["a"].remove("api", "new:*")
    with pytest.raises(NotFound):
        rig.running["a"].remove("api", "new:*")


async def test_several_subjects_pass_together_or_not_at_all(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated", contract(rate=0.001))
    node = rig.running["a"]
    node.put(read_contract({**contract(rate=0.001, burst=2), "subject": "ip:*", "mode": "local"}))
    assert [(await node.check("api", ["user", "ip:1"], 1)).allowed for _ in range(3)] == [True, True, False]
    assert (await node.peek("api", "user")).policies[0].remaining == 10
    assert (await node.check("api", ["user", "ip:2"], 1, peek=True)).allowed
    assert (await node.peek("api", "user")).policies[0].remaining == 10


@pytest.mark.parametrize("mode", ["replicated", "exact", "auto"])
async def test_bans_and_resets_reach_all_nodes(autojump_clock: MockClock, rig: Rig, mode: Mode) -> None:
    await started(rig, mode, contract(rate=0.001))
    await rig.running["a"].ban("api", "user")
    await trio.sleep(1)
    assert [await rig.taken(name, 2) for name in NAMES] == [0] * 3
    assert [subject for subject, _, _ in await rig.running["a"].banned("api", 10)] == ["user"]
    await rig.running["a"].ban("api", "user")
    await trio.sleep(1)
    waits = [(await rig.running[name].peek("api", "user")).wait_ns for name in NAMES]
    assert all(wait is not None and wait <= 13_000 * 10**9 for wait in waits), "twice is no more than once"
    await rig.running["a"].reset("api", "user")
    await trio.sleep(12)
    assert await rig.taken("c", 5) == 5


@pytest.mark.parametrize(("banned", "more"), [("a", []), ("b", []), ("c", [LARGE])])
async def test_a_ban_of_a_hot_subject_reaches_all_nodes_and_lasts_though_it_goes_on_asking(
    autojump_clock: MockClock, rig: Rig, banned: str, more: list[dict[str, object]]
) -> None:
    policies = [*more, {"name": "burst", "rate": 10, "burst": 60, "max_debt": 300}]
    await started(rig, "auto", contract(policies=policies))

    async def asked(seconds: int) -> list[int]:
        passed = [0] * 3
        for _ in range(seconds * 50):
            for number, name in enumerate(NAMES):
                passed[number] += await rig.taken(name, 2)
            await trio.sleep(0.02)
        return passed

    assert all(await asked(4))
    machines = [node._groups["api", "*"].machine for node in rig.running.values()]
    subject = KEY.subject("api", "user")
    assert all(isinstance(machine, Auto) and machine.is_hot(subject) for machine in machines)
    await rig.running[banned].ban("api", "user")
    await trio.sleep(0.1)
    assert await asked(29) == [0] * 3
    passed = sum(await asked(7))
    assert 40 <= passed <= 62, "time has paid 300 tokens after 30 s"
    await rig.running[banned].ban("api", "user")
    await trio.sleep(0.1)
    assert await asked(1) == [0] * 3
    await rig.running["c"].reset("api", "user")
    await asked(11)  # what is given back is told within ten seconds
    assert all(await asked(2))


async def test_exact_resets_nothing_while_a_node_cannot_be_reached(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "exact", contract(rate=0.001))
    await rig.running["a"].ban("api", "user")
    await rig.split("c", "ab")
    with pytest.raises(Unavailable, match="resets nothing here now"):
        await rig.running["a"].reset("api", "user")
    assert [subject for subject, _, _ in await rig.running["a"].banned("api", 10)] == ["user"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["replicated", "exact", "auto"])
async def test_a_flood_of_new_subjects_at_one_node_costs_no_node_more_than_its_places(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    for name in NAMES:
        rig.start(name, mode, document=contract(rate=0.001), most_subjects=5_000 if name == "a" else 100)
    await rig.linked()
    known = await rig.taken("b", 3, "known")
    for number in range(2_000):
        await rig.let("a", f"new-{number}")
    await trio.sleep(15)
    counted = [rig.running[name].subjects()["api"] for name in NAMES]
    assert counted[0] > 2_000
    assert all(100 < count <= 100 + 1_024 for count in counted[1:])
    said = [(await rig.running[name].peek("api", "one-more")) for name in NAMES]
    assert [verdict.shared for verdict in said] == [False, True, True]
    assert known == 3
    assert await rig.taken("c", 2, "known") == 2, "who was there before pays nothing for the flood"


@pytest.mark.parametrize("mode", ["replicated", "exact", "auto"])
@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_subject_that_is_known_at_some_nodes_only_gets_its_contract_once(
    autojump_clock: MockClock, rig: Rig, mode: Mode, first: str
) -> None:
    document = contract(rate=0.001)
    for name, most in (("a", 1), ("b", 1_000), ("c", 1_000)):
        rig.start(name, mode, document=document, most_subjects=most)
    await rig.linked()
    await rig.let("a", "there before")
    passed = await rig.taken(first, 8)
    assert passed >= 3
    for name in ("c", "b", "a"):
        await trio.sleep(12)
        passed += await rig.taken(name, 20)
    assert passed <= 12


@pytest.mark.parametrize("mode", ["counter", "queue"])
async def test_frequent_requests_are_told_at_once_under_frequency_analysis(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    await started(rig, mode)
    left = []
    for options in ({}, {"frequency_analysis": True, "gossip": "linf"}):
        document = contract(rate=0.001, subject=f"{len(options)}:*", mode=mode, **options)
        for node in rig.running.values():
            node.put(read_contract(document))
        subject = f"{len(options)}:user"
        for _ in range(12):
            assert await rig.let("a", subject)
            await trio.sleep(0.002)  # the queue takes requests of one ms for one
        left.append((await rig.running["b"].peek("api", subject)).policies[0].remaining)
    assert left[0] == 12, "not before it gossips"
    assert left[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("gossip", ["random", "linf"])
@pytest.mark.parametrize("mode", ["counter", "queue"])
async def test_a_node_gossips_to_whom_its_contract_says(
    autojump_clock: MockClock, rig: Rig, mode: Mode, gossip: str
) -> None:
    await started(rig, mode, contract(rate=0.001, mode=mode, gossip=gossip))

    async def told(name: str, subject: str) -> bool:
        return (await rig.running[name].peek("api", subject)).policies[0].remaining < 12

    waited = []
    for number in range(12):
        await rig.let("a", f"user:{number}")
        begun = trio.current_time()
        while not all([await told(name, f"user:{number}") for name in "bc"]):  # noqa: ASYNC110 - gossip tells nobody
            await trio.sleep(0.02)
        waited.append(trio.current_time() - begun)
    if gossip == "linf":
        assert max(waited) < 0.65, "two rounds of gossip reach both"
    else:
        assert max(waited) > 0.65, "chance tells the same peer again, now and then"


@pytest.mark.parametrize("mode", ["counter", "queue"])
async def test_a_flood_is_bounded_where_it_comes_in_the_thesis_designs_too(
    autojump_clock: MockClock, rig: Rig, mode: Mode
) -> None:
    rig.start("a", mode, document=contract(rate=0.001), most_subjects=10)
    for number in range(2_000):
        await rig.let("a", f"new-{number}")
    assert 10 <= rig.running["a"].subjects()["api"] <= 10 + 1_024
    assert (await rig.running["a"].peek("api", "one-more")).shared


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_node_knows_its_heaviest_subjects(autojump_clock: MockClock, rig: Rig, mode: Mode) -> None:
    await started(rig, mode, contract(rate=1, burst=1_000))
    node = rig.running["a"]
    node.put(read_contract({**contract(rate=1, burst=1_000), "subject": "here:*", "mode": "local"}))
    for number in range(300):
        await rig.let("a", "often")
        await rig.let("a", "here:more")
        await rig.let("a", "here:more")
        await rig.let("a", f"once-{number}")
        await node.check("api", ["looked at"], 1, peek=True)
    found = node.heaviest("api", 2)
    assert [each.subject for each in found] == ["here:more", "often"]
    assert 100 < found[1].checks < 600
    assert "looked at" not in [each.subject for each in node.heaviest("api", 1_000)]
    assert rig.running["b"].heaviest("api", 2) == []


async def test_shadow_contracts_refuse_nobody_and_are_counted(autojump_clock: MockClock, rig: Rig) -> None:
    await started(rig, "replicated", contract(rate=0.001, shadow=True))
    said = [(await rig.running["a"].check("api", ["user"], 1)).decisive for _ in range(14)]
    assert all(verdict.allowed for verdict in said)
    assert sum(verdict.shadowed for verdict in said) == 2
    counts = rig.running["a"].counts(read_contract(contract()))
    assert (counts[0].allowed, counts[0].refused, counts[0].cost) == (12, 2, 12)
    assert rig.running["a"].subjects() == {"api": 1}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mode": "counter", "starts": "empty"}, "starts"),
        ({"policies": [{"name": "l", "kind": "log", "quota": 5, "window": "60s"}]}, r'policies\[0\].*"window"'),
        ({"policies": [{"name": "p", "kind": "pace", "rate": 5, "max_wait": "1s"}]}, r"policies\[0\].*local"),
        ({"mode": "exact", "policies": [WINDOW]}, r'policies\[0\].*must be "bucket"'),
        ({"on_partition": "share", "policies": [WINDOW]}, "on_partition.*go on"),
        ({"mode": "counter", "policies": [{"name": n, "rate": 1, "burst": 1} for n in "ab"]}, "policies"),
        (
            {"mode": "auto", "policies": [{"name": "b", "rate": 1, "burst": 1}, WINDOW]},
            r'policies\[1\].*must be "bucket"',
        ),
    ],
)
async def test_contracts_that_nodes_cannot_hold_are_refused(
    autojump_clock: MockClock, rig: Rig, change: dict[str, object], field: str
) -> None:
    rig.start("a", "replicated")
    with pytest.raises(BadInput, match=field):
        rig.running["a"].put(read_contract({**contract(), **change}))


async def test_one_node_alone_decides_locally_and_says_so() -> None:
    alone = Decisions(Limiter())
    alone.put(read_contract(contract()))
    assert (await alone.check("api", ["user"], 1)).decisive.mode == "local"
    with pytest.raises(BadInput, match="no peers"):
        alone.put(read_contract(contract(mode="replicated")))


async def test_only_contracts_of_mode_exact_make_a_check_wait(autojump_clock: MockClock, rig: Rig) -> None:
    rig.start("a", "replicated")
    decisions = rig.running["a"]
    assert not decisions.may_wait
    decisions.put(read_contract(contract(subject="exact:*", mode="exact")))
    assert decisions.may_wait
    assert decisions.is_limited("api", "exact:1")
    assert not decisions.is_limited("other", "exact:1")
    decisions.put(read_contract(contract(subject="exact:*", mode="local")))
    assert not decisions.may_wait
    decisions.put(read_contract(contract(subject="exact:*", mode="exact")))
    decisions.remove("api", "exact:*")
    assert not decisions.may_wait
