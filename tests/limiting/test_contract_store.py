"""The contracts of a limit service: versions, and a file that keeps them."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import trio
import trio.lowlevel
import trio.testing

from limiting.contract_store import NOTED_PORTION, ContractStore
from limiting.database import FILE, Database, Row
from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import Contract, read_contract
from srtm.errors import BadInput, Conflict, NotFound, Unavailable
from srtm.limiting.limiter import Limiter


def contract(burst: float = 2, pattern: str = "*", **others: object) -> Contract:
    policy = {"name": "burst", "rate": 1, "burst": burst}
    return read_contract({"namespace": "api", "subject": pattern, "policies": [policy], **others})


def restarted(before: ContractStore, data: Path, limiter: Limiter | None = None) -> ContractStore:
    """The contracts of the next service, once that of ``before`` has ended."""
    assert before._database is not None
    before._database.close()
    return ContractStore(Decisions(limiter or Limiter()), Database(data))


async def test_what_was_put_is_in_force_after_a_restart(tmp_path: Path) -> None:
    store = ContractStore(Decisions(Limiter()), Database(tmp_path / "data"))
    store.put_all([contract(), contract(9, "user:*")])
    await store.put(contract(3))
    await store.remove("api", "user:*")
    limiter = Limiter()
    again = restarted(store, tmp_path / "data", limiter)
    assert again.all() == store.all()
    assert limiter.peek("api", "x").policies[0].remaining == 3
    assert (await again.put(contract(4))).version > store.get("api", "*").version


def test_a_directory_is_of_one_service_at_a_time(tmp_path: Path) -> None:
    with closing(Database(tmp_path)), pytest.raises(Conflict, match=r"data: .* is in use by another limit service"):
        Database(tmp_path)
    Database(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(BadInput, match=r"data: .*must be a directory that can be written"):
            ContractStore(Decisions(Limiter()), Database(data))


async def test_the_same_contract_again_changes_nothing() -> None:
    store = ContractStore(Decisions(Limiter()))
    assert (await store.put(contract())).version == (await store.put(contract())).version
    assert (await store.put(contract(3))).version == 2


async def test_a_change_by_an_old_version_is_refused() -> None:
    store = ContractStore(Decisions(Limiter()))
    first = await store.put(contract())
    with pytest.raises(Conflict, match="there is none"):
        await store.put(contract(pattern="new"), "*")
    second = await store.put(contract(3), first.etag)
    with pytest.raises(Conflict, match="read it again"):
        await store.put(contract(4), first.etag)
    with pytest.raises(Conflict, match="read it again"):
        await store.remove("api", "*", first.etag)
    await store.remove("api", "*", second.etag)
    with pytest.raises(NotFound):
        store.get("api", "*")


def test_one_contract_that_cannot_be_served_leaves_all_as_they_were() -> None:
    limiter = Limiter()
    store = ContractStore(Decisions(limiter))
    with pytest.raises(BadInput, match="mode"):
        store.put_all([contract(), contract(pattern="user:*", mode="store")])
    assert store.all() == []
    assert limiter.contracts == []


async def test_a_change_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    database = Database(tmp_path)
    store = ContractStore(Decisions(Limiter()), database)
    await store.put(contract())
    database._database.execute("alter table latest rename to gone")
    with pytest.raises(Unavailable, match="cannot be kept"):
        await store.put(contract(3))
    with pytest.raises(Unavailable, match="cannot be kept"):
        await store.submit([contract(3)])
    with pytest.raises(Unavailable, match="cannot be kept"):
        await store.remove("api", "*")
    database._database.execute("alter table gone rename to latest")
    assert store.get("api", "*").contract == contract()
    assert restarted(store, tmp_path).all() == store.all()


async def test_the_file_of_an_earlier_service_is_taken_over_once(tmp_path: Path) -> None:
    saved = {"version": 7, "contracts": [[3, contract().to_json()], [7, contract(9, "user:*").to_json()]]}
    (tmp_path / "contracts.json").write_bytes(msgspec.json.encode(saved))
    store = ContractStore(Decisions(Limiter()), Database(tmp_path))
    assert [(each.contract, each.version) for each in store.all()] == [(contract(), 3), (contract(9, "user:*"), 7)]
    assert (await store.put(contract(4))).version == 8
    assert restarted(store, tmp_path).all() == store.all()


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough" * 100)
    with pytest.raises(BadInput, match=r"limits\.sqlite3.*must hold the contracts of a limit service"):
        ContractStore(Decisions(Limiter()), Database(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"version": 1, "contracts": [[1, {"namespace": 3}]]}',
        '{"version": 1, "contracts": [[1, {"namespace": "api"}]]}',
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "contracts.json").write_text(text)
    with pytest.raises(BadInput):
        ContractStore(Decisions(Limiter()), Database(tmp_path))


async def test_many_are_put_in_force_between_the_turns_of_others(tmp_path: Path, nursery: trio.Nursery) -> None:
    store, turns = ContractStore(Decisions(Limiter()), Database(tmp_path)), 0

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
    assert await store.submit(wanted) == kept
    assert (await store.put(contract(3))).version == 2, "what is the same makes no version"
    assert restarted(store, tmp_path).all() == store.all()


async def test_a_client_that_leaves_once_its_contracts_are_on_disk_leaves_them_all(tmp_path: Path) -> None:
    store = ContractStore(Decisions(Limiter()), Leaving(tmp_path / "data"))
    several = [contract(pattern=f"user:{number}") for number in range(3 * NOTED_PORTION)]
    with trio.CancelScope() as Leaving.scope:
        await store.submit(several)
    assert Leaving.scope.cancelled_caught
    assert {(await store.put(each)).version for each in several} == {1}, "what is on disk is not another version"
    assert (await store.put(contract())).version == 2


class Leaving(Database):
    """Whoever puts contracts here is gone when they are on disk."""

    scope: trio.CancelScope

    def put(self, rows: Iterable[Row], version: int) -> None:
        super().put(rows, version)
        trio.from_thread.run_sync(self.scope.cancel)


async def test_the_collector_does_not_go_through_contracts() -> None:
    policies: list[dict[str, object]] = [
        {"name": "a", "rate": 1, "burst": 2},
        {"name": "b", "kind": "window", "quota": 20, "window": "1d", "slices": 60},
        {"name": "c", "kind": "log", "quota": 20, "window": "60s"},
        {"name": "d", "kind": "pace", "rate": 1, "max_wait": "5s"},
        {"name": "e", "kind": "concurrency", "quota": 2},
    ]
    document = {"namespace": "api", "subject": "*", "policies": policies}
    kept = await ContractStore(Decisions(Limiter())).put(read_contract(document))
    gc.collect()  # it lets go of tuples whose items it need not see
    found = [kept, kept.contract, kept.contract.policies, *kept.contract.policies]
    assert [each for each in found if gc.is_tracked(each)] == []


async def test_a_change_while_many_are_submitted_stays(tmp_path: Path, nursery: trio.Nursery) -> None:
    limiter = Limiter()
    store = ContractStore(Decisions(limiter), Database(tmp_path))
    wanted = [contract(pattern=f"user:{number}") for number in range(300)]
    nursery.start_soon(store.submit, wanted)
    with trio.fail_after(30):
        while not store.all():
            await trio.lowlevel.checkpoint()
    newer = contract(9, pattern="user:299")
    same = contract(pattern="user:298")
    assert (await store.put(newer)).contract == newer
    assert (await store.put(same)).version == 1
    await store.remove("api", "user:297")
    await trio.testing.wait_all_tasks_blocked()
    assert len(store.all()) == 299
    assert limiter.peek("api", "user:299").policies[0].remaining == 9
    with pytest.raises(NotFound):
        limiter.peek("api", "user:297")
    assert restarted(store, tmp_path).all() == store.all()


async def test_a_change_while_a_submission_is_written_comes_after_it(tmp_path: Path, nursery: trio.Nursery) -> None:
    store = ContractStore(Decisions(Limiter()), Database(tmp_path))
    nursery.start_soon(store.submit, [contract(), contract(pattern="other")])
    await trio.testing.wait_all_tasks_blocked()
    assert (await store.put(contract(9, pattern="other"))).version == 2
    again = restarted(store, tmp_path)
    assert [(each.contract, each.version) for each in again.all()] == [(contract(), 1), (contract(9, "other"), 2)]


async def test_a_submission_that_cannot_be_served_changes_nothing(tmp_path: Path) -> None:
    store = ContractStore(Decisions(Limiter()), Database(tmp_path))
    with pytest.raises(BadInput, match="mode"):
        await store.submit([contract(), contract(pattern="user:*", mode="store")])
    assert store.all() == []


async def test_a_contract_that_is_not_served_here_is_named_by_its_place() -> None:
    store = ContractStore(Decisions(Limiter()))
    several = [contract(), contract(pattern="user:*", mode="exact")]
    with pytest.raises(BadInput, match=r"^contracts\[1\]\.mode: 'exact': must be \"local\""):
        store.put_all(several)
    with pytest.raises(BadInput, match=r"^contracts\[1\]\.mode: 'exact'"):
        await store.submit(several)
    with pytest.raises(BadInput, match=r"^mode: 'exact'"):
        await store.put(several[1])
    assert store.all() == []
