"""The contracts of a limit service: versions, and a file that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing

from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import Contract, read_contract
from srtm.errors import BadInput, Conflict, NotFound, Unavailable
from srtm.limiting.limiter import Limiter


def contract(burst: float = 2, pattern: str = "*", **others: object) -> Contract:
    policy = {"name": "burst", "rate": 1, "burst": burst}
    return read_contract({"namespace": "api", "subject": pattern, "policies": [policy], **others})


def test_what_was_put_is_in_force_after_a_restart(tmp_path: Path) -> None:
    store = ContractStore(Decisions(Limiter()), tmp_path / "data")
    store.put_all([contract(), contract(9, "user:*")])
    store.put(contract(3))
    store.remove("api", "user:*")
    limiter = Limiter()
    again = ContractStore(Decisions(limiter), tmp_path / "data")
    assert again.all() == store.all()
    assert limiter.peek("api", "x").policies[0].remaining == 3
    assert again.put(contract(4)).version > store.get("api", "*").version


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(BadInput, match=r"data: .*must be a directory that can be written"):
            ContractStore(Decisions(Limiter()), data)


def test_the_same_contract_again_changes_nothing() -> None:
    store = ContractStore(Decisions(Limiter()))
    assert store.put(contract()).version == store.put(contract()).version
    assert store.put(contract(3)).version == 2


def test_a_change_by_an_old_version_is_refused() -> None:
    store = ContractStore(Decisions(Limiter()))
    first = store.put(contract())
    with pytest.raises(Conflict, match="there is none"):
        store.put(contract(pattern="new"), "*")
    second = store.put(contract(3), first.etag)
    for change in (lambda: store.put(contract(4), first.etag), lambda: store.remove("api", "*", first.etag)):
        with pytest.raises(Conflict, match="read it again"):
            change()
    store.remove("api", "*", second.etag)
    with pytest.raises(NotFound):
        store.get("api", "*")


def test_one_contract_that_cannot_be_served_leaves_all_as_they_were() -> None:
    limiter = Limiter()
    store = ContractStore(Decisions(limiter))
    with pytest.raises(BadInput, match="mode"):
        store.put_all([contract(), contract(pattern="user:*", mode="store")])
    assert store.all() == []
    assert limiter.contracts == []


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    store = ContractStore(Decisions(Limiter()), tmp_path)
    store.put(contract())
    (tmp_path / "contracts.new").mkdir()
    with pytest.raises(Unavailable, match="cannot be kept"):
        store.put(contract(3))
    assert store.get("api", "*").contract == contract()


@pytest.mark.parametrize("text", ["", "{", '{"version": 1, "contracts": [[1, {"namespace": "api"}]]}'])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "contracts.json").write_text(text)
    with pytest.raises(BadInput):
        ContractStore(Decisions(Limiter()), tmp_path)


async def test_many_are_put_in_force_between_the_turns_of_others(tmp_path: Path, nursery: trio.Nursery) -> None:
    store, turns = ContractStore(Decisions(Limiter()), tmp_path), 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    nursery.start_soon(count)
    wanted = [contract(pattern=f"user:{number}:*") for number in range(1_000)]
    kept = await store.submit(wanted)
    assert [each.contract for each in kept] == wanted
    assert turns >= 90, "once while they are checked, once while they are put in force"
    assert {each.version for each in kept} == {1}
    assert store.all() == sorted(kept, key=lambda each: each.contract.key)
    assert ContractStore(Decisions(Limiter()), tmp_path).all() == store.all()
    assert await store.submit(wanted) == kept
    assert store.put(contract(3)).version == 2, "what is the same makes no version"


async def test_a_change_while_many_are_submitted_stays(tmp_path: Path, nursery: trio.Nursery) -> None:
    limiter = Limiter()
    store = ContractStore(Decisions(limiter), tmp_path)
    wanted = [contract(pattern=f"user:{number}") for number in range(300)]
    nursery.start_soon(store.submit, wanted)
    with trio.fail_after(30):
        while not store.all():
            await trio.lowlevel.checkpoint()
    newer = contract(9, pattern="user:299")
    same = contract(pattern="user:298")
    assert store.put(newer).contract == newer
    assert store.put(same).version == 1
    store.remove("api", "user:297")
    await trio.testing.wait_all_tasks_blocked()
    assert len(store.all()) == 299
    assert limiter.peek("api", "user:299").policies[0].remaining == 9
    with pytest.raises(NotFound):
        limiter.peek("api", "user:297")
    assert ContractStore(Decisions(Limiter()), tmp_path).all() == store.all()


async def test_a_change_while_a_submission_is_written_stays_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ContractStore(Decisions(Limiter()), tmp_path)
    run_sync, times = trio.to_thread.run_sync, 0

    async def interrupted(*call: object) -> object:
        nonlocal times
        written = await run_sync(*call)  # type: ignore[call-overload]
        times += 1
        if times == 1:
            store.put(contract(9, pattern="other"))
        return written

    monkeypatch.setattr(trio.to_thread, "run_sync", interrupted)
    (kept,) = await store.submit([contract()])
    assert (times, kept.version) == (2, 2)
    again = ContractStore(Decisions(Limiter()), tmp_path)
    assert [each.contract.subject for each in again.all()] == ["*", "other"]


async def test_a_submission_that_cannot_be_served_or_kept_changes_nothing(tmp_path: Path) -> None:
    store = ContractStore(Decisions(Limiter()), tmp_path)
    with pytest.raises(BadInput, match="mode"):
        await store.submit([contract(), contract(pattern="user:*", mode="store")])
    (tmp_path / "contracts.submitted").mkdir()
    with pytest.raises(Unavailable, match="cannot be kept"):
        await store.submit([contract()])
    assert store.all() == []


async def test_a_contract_that_is_not_served_here_is_named_by_its_place() -> None:
    store = ContractStore(Decisions(Limiter()))
    several = [contract(), contract(pattern="user:*", mode="exact")]
    with pytest.raises(BadInput, match=r"^contracts\[1\]\.mode: 'exact': must be \"local\""):
        store.put_all(several)
    with pytest.raises(BadInput, match=r"^contracts\[1\]\.mode: 'exact'"):
        await store.submit(several)
    with pytest.raises(BadInput, match=r"^mode: 'exact'"):
        store.put(several[1])
    assert store.all() == []
