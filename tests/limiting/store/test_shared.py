"""Mode ``store`` in virtual time, over a store that the test makes silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from limiting.nodes.decisions import Decisions
from limiting.store.shared import SharedStore
from srtm.contracts.contract import read_contract
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.limiting.limiter import Limiter

BUDGET_S = 0.18


class FakeStore:
    """Counts its calls, and allows everything: three tokens are left."""

    def __init__(self) -> None:
        self.silent = False
        self.calls: list[str] = []
        self.count = 1

    async def _heard(self) -> None:
        if self.silent:
            await trio.sleep(BUDGET_S)
            raise Unavailable("store: no answer")

    async def decide(self, _keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> list[Any]:
        self.calls.append(str(arguments[0]))
        await self._heard()
        return [1, 1_795_000_000_000_000, [1, [0, 3 * 10**12]]]

    async def forget(self, _keys: Sequence[str]) -> None:
        self.calls.append("forget")
        await self._heard()

    async def nodes(self) -> tuple[int, bytes]:
        await self._heard()
        return self.count, b"k" * 32


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def decisions(store: FakeStore) -> Decisions:
    def clocks() -> tuple[int, int]:
        now = round(trio.current_time() * 1e9)
        return now, now

    limiter = Limiter(clocks=clocks)
    shared = SharedStore(store, limiter)
    await shared.probe()
    made = Decisions(limiter, store=shared, mode="store", clocks=clocks)
    made.put(contract())
    return made


def contract(**others: object) -> Any:
    policies = [{"name": "burst", "rate": 1, "burst": 6}]
    return read_contract({"namespace": "api", "subject": "*", "policies": policies, **others})


async def asked(decisions: Decisions, cost: int = 1, *, peek: bool = False) -> Any:
    return (await decisions.check("api", ["user"], cost, peek=peek)).decisive


async def test_a_store_that_is_there_decides(decisions: Decisions, store: FakeStore) -> None:
    verdict = await asked(decisions)
    assert (verdict.allowed, verdict.mode, verdict.degraded) == (True, "store", False)
    assert verdict.policies[0].remaining == 3
    assert (await asked(decisions, peek=True)).grant is None
    assert store.calls == ["take", "look"]
    assert decisions.counts(contract())[0][1:] == (1, 0, 1)


async def test_the_heaviest_subjects_of_the_store_are_known(decisions: Decisions) -> None:
    for number in range(200):
        await decisions.check("api", ["often"], 1)
        await decisions.check("api", [f"once-{number}"], 1)
        await decisions.check("api", ["looked at"], 1, peek=True)
    found = decisions.heaviest("api", 1_000)
    assert found[0].subject == "often"
    assert 50 < found[0].checks < 400
    assert "looked at" not in [each.subject for each in found]


async def test_three_answers_take_the_budget_and_then_none_waits(
    autojump_clock: MockClock, decisions: Decisions, store: FakeStore
) -> None:
    store.silent = True
    took = []
    for _ in range(6):
        begun = trio.current_time()
        assert (await asked(decisions)).degraded
        took.append(trio.current_time() - begun)
    assert took == pytest.approx([BUDGET_S] * 3 + [0] * 3)
    assert len(store.calls) == 3


async def test_the_store_decides_again_within_two_seconds(
    autojump_clock: MockClock, decisions: Decisions, store: FakeStore
) -> None:
    store.silent = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decisions.run)
        for _ in range(3):
            await asked(decisions)
        await trio.sleep(10)
        assert (await asked(decisions)).degraded
        store.silent = False
        await trio.sleep(2)
        assert not (await asked(decisions)).degraded
        nursery.cancel_scope.cancel()


async def test_without_the_store_a_node_lets_its_part_through(
    autojump_clock: MockClock, decisions: Decisions, store: FakeStore
) -> None:
    store.count = 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decisions.run)
        await trio.sleep(1.5)
        store.silent = True
        verdicts = [await asked(decisions) for _ in range(4)]
        assert [verdict.allowed for verdict in verdicts] == [True, True, False, False]
        assert {verdict.mode for verdict in verdicts} == {"local"}
        assert verdicts[0].contract == contract(), "not the part of it"
        assert decisions.counts(contract())[0][1:] == (2, 2, 2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("on_failure", "passes"), [("open", True), ("closed", False)])
async def test_a_contract_may_let_all_or_none_through(
    autojump_clock: MockClock, decisions: Decisions, store: FakeStore, on_failure: str, passes: bool
) -> None:
    decisions.put(contract(on_failure=on_failure))
    store.silent = True
    for _ in range(9):
        verdict = await asked(decisions)
        assert (verdict.allowed, verdict.degraded) == (passes, True)
        assert verdict.wait_ns == (0 if passes else 10**9)
    assert (await asked(decisions, peek=True)).allowed == passes
    assert decisions.counts(contract())[0][1:3] == ((9, 0) if passes else (0, 9))


async def test_grants_reach_the_store_and_others_the_limiter(
    autojump_clock: MockClock, decisions: Decisions, store: FakeStore
) -> None:
    grant = (await asked(decisions)).grant
    await decisions.correct(grant, 3)
    await decisions.release(grant)
    assert store.calls == ["take", "correct", "release"]
    store.silent = True
    with pytest.raises(Unavailable, match="cannot be changed now"):
        await decisions.correct(grant, 3)
    with pytest.raises(Unavailable, match="nobody can be charged"):
        await decisions.charge("api", "user", 1)
    with pytest.raises(Unavailable):
        await decisions.reset("api", "user")
    own = (await asked(decisions)).grant
    await decisions.correct(own, 3)
    with pytest.raises(BadInput, match="grant"):
        await decisions.correct(bytes(48), 3)


async def test_several_subjects_cannot_be_charged_together(decisions: Decisions) -> None:
    with pytest.raises(BadInput, match='"store"'):
        await decisions.check("api", ["a", "b"], 1)
    assert (await decisions.check("api", ["a", "b"], 1, peek=True)).allowed


async def test_another_number_of_nodes_holds_up_nobody(
    decisions: Decisions, store: FakeStore, nursery: trio.Nursery
) -> None:
    for number in range(200):
        decisions.put(contract(subject=f"user{number}"))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    nursery.start_soon(other)
    store.count = 2
    shared = decisions._store
    assert shared is not None
    await shared.probe()
    assert turns >= 8
    parts = [decisions.limiter.check("api", f"user{number}", 3) for number in range(200)]
    assert all(part.allowed and part.policies[0].remaining == 0 for part in parts), "half of 6"


async def test_checks_may_wait_while_the_store_holds_a_contract(decisions: Decisions) -> None:
    assert decisions.may_wait
    decisions.put(contract(mode="local"))
    assert not decisions.may_wait


async def test_a_contract_changes_its_mode_and_goes(decisions: Decisions, store: FakeStore) -> None:
    decisions.put(contract(mode="local"))
    assert (await asked(decisions)).mode == "local"
    decisions.put(contract())
    assert (await asked(decisions)).mode == "store"
    decisions.remove("api", "*")
    with pytest.raises(NotFound):
        await asked(decisions)
    assert store.calls == ["take"]


async def test_a_contract_may_go_while_the_store_is_asked(
    autojump_clock: MockClock, decisions: Decisions, store: FakeStore, nursery: trio.Nursery
) -> None:
    decisions.put(contract(on_failure="open"))
    store.silent = True
    verdicts = []

    async def ask() -> None:
        verdicts.append(await asked(decisions))

    nursery.start_soon(ask)
    await trio.sleep(BUDGET_S / 2)
    decisions.remove("api", "*")
    await trio.sleep(BUDGET_S)
    assert verdicts[0].allowed
    with pytest.raises(NotFound):
        decisions.counts(contract())


def test_without_a_store_its_mode_is_refused() -> None:
    with pytest.raises(BadInput, match="--store"):
        Decisions(Limiter()).put(contract(mode="store"))
