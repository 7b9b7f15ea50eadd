"""What subjects have used, over restarts of a service: a database, two limiters, and clocks by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from limiting.contract_store import ContractStore
from limiting.database import FILE, Database, UsedRow
from limiting.nodes.decisions import Decisions
from limiting.usage import Usage
from srtm.contracts.contract import Contract, check_for_brokers, read_contract
from srtm.errors import BadInput, Unavailable
from srtm.limiting.limiter import Limiter
from srtm.log import Log
from tests.support.file_modes import OWNER_ALONE, modes, no_umask

S = 10**9
QUOTA = {"name": "daily", "kind": "window", "quota": 10, "window": "1d", "slices": 24, "aligned": True, "persist": True}
BURST = {"name": "burst", "rate": 1, "burst": 10, "persist": True}
FRESH = {"name": "fresh", "rate": 0.001, "burst": 10}


def contract(*policies: dict[str, Any]) -> Contract:
    return read_contract({"namespace": "api", "subject": "user:*", "policies": list(policies)})


class Clocks:
    """Two clocks by hand; the monotonic one begins at ``started``."""

    def __init__(self, wall: int, started: int = 0) -> None:
        self.wall, self.started = wall, started

    def __call__(self) -> tuple[int, int]:
        return self.started, self.wall


class Service(NamedTuple):
    limiter: Limiter
    contracts: ContractStore
    usage: Usage
    restored: int
    database: Database

    def left(self, subject: str = "user:1") -> list[int]:
        return [policy.remaining for policy in self.limiter.peek("api", subject).policies]


@contextmanager
def started(data: Path, clocks: Clocks) -> Iterator[Service]:
    database = Database(data)
    limiter = Limiter(clocks=clocks, subjects_key=database.subjects_key())
    contracts = ContractStore(Decisions(limiter), database)
    usage = Usage(limiter, contracts, database, Log("limit"))
    yield Service(limiter, contracts, usage, usage.restore(), database)
    database.close()


def test_what_was_used_of_policies_that_persist_is_used_after_a_restart(tmp_path: Path) -> None:
    with started(tmp_path, Clocks(100 * S, 50 * S)) as first:
        first.contracts.put_all([contract(QUOTA, BURST, FRESH)])
        first.limiter.check("api", "user:1", 6)
        first.limiter.check("api", "user:2", 1)
        first.limiter.reset("api", "user:2")
        first.usage.save()
    with started(tmp_path, Clocks(103 * S)) as second:
        assert second.restored == 1
        assert second.left() == [4, 7, 10], "three seconds have refilled three tokens"
        assert second.left("user:2") == [10, 10, 10]
        second.limiter.check("api", "user:1", 4)
        second.usage.save()
    with started(tmp_path, Clocks(103 * S)) as third:
        assert third.left() == [0, 3, 10]


def test_a_contract_changed_in_between_mints_nothing(tmp_path: Path) -> None:
    with started(tmp_path, Clocks(0)) as first:
        first.contracts.put_all([contract(BURST)])
        first.limiter.check("api", "user:1", 8)
        first.contracts.put_all([contract({**BURST, "burst": 20})])
        first.usage.save()
    with started(tmp_path, Clocks(0)) as second:
        assert second.left() == [2]
        second.contracts.put_all([contract({**BURST, "burst": 5})])
        assert second.left() == [2]


def test_what_was_written_under_another_version_is_dropped(tmp_path: Path) -> None:
    with started(tmp_path, Clocks(0)) as first:
        first.contracts.put_all([contract(BURST)])
        first.limiter.check("api", "user:1", 8)
        first.usage.save()
        first.contracts.put_all([contract({**BURST, "rate": 2})])
    with started(tmp_path, Clocks(0)) as second:
        assert second.restored == 0
        assert second.left() == [10]
        assert list(second.database.used()) == []


async def test_with_a_contract_goes_what_its_subjects_have_used(tmp_path: Path) -> None:
    with started(tmp_path, Clocks(0)) as first:
        first.contracts.put_all([contract(BURST)])
        first.limiter.check("api", "user:1", 8)
        first.usage.save()
        await first.contracts.remove("api", "user:*")
        first.usage.save()
        assert list(first.database.used()) == []


async def test_changes_are_written_each_second_and_once_more_after_a_failure(
    tmp_path: Path,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(call: Callable[..., None], *arguments: object) -> None:
        call(*arguments)  # virtual time does not wait for threads

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    written: list[list[UsedRow]] = []
    log: list[str] = []
    with started(tmp_path, Clocks(0)) as service:
        fails = True

        class Failing:
            def put_used(self, rows: list[UsedRow]) -> None:
                if fails:
                    raise Unavailable("the disk is full")
                written.append(rows)

        usage = Usage(service.limiter, service.contracts, Failing(), Log("limit", log.append))  # type: ignore[arg-type]
        nursery.start_soon(usage.run)
        service.contracts.put_all([contract(BURST)])
        service.limiter.check("api", "user:1", 8)
        await trio.sleep(3.5)
        assert written == []
        assert len(log) == 1, "the failure is told once"
        fails = False
        service.limiter.check("api", "user:2", 1)
        await trio.sleep(1)
        assert sorted(len(rows) for rows in written) == [2]
        await trio.sleep(5)
        assert len(written) == 1, "nothing is written while nothing changes"
        nursery.cancel_scope.cancel()


async def test_what_changes_while_it_is_written_waits_for_the_next_second(
    tmp_path: Path,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with started(tmp_path, Clocks(0)) as service:
        written_s: list[int] = []

        async def at_once(call: Callable[..., None], *arguments: object) -> None:
            call(*arguments)
            written_s.append(round(trio.current_time() - begun_s))
            if len(written_s) < 9:
                service.limiter.check("api", "user:1", 1)

        monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
        service.contracts.put_all([contract(BURST)])
        service.limiter.check("api", "user:1", 1)
        begun_s = trio.current_time()
        nursery.start_soon(service.usage.run)
        await trio.sleep(4.5)
        assert written_s == [1, 2, 3, 4]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("policy", [QUOTA, BURST, {"name": "p", "kind": "pace", "rate": 1, "max_wait": "1s"}])
def test_a_policy_that_persists_says_so_in_its_document(policy: dict[str, Any]) -> None:
    kept = contract({**policy, "persist": True})
    assert contract(*kept.to_json()["policies"]) == kept  # type: ignore[misc]
    assert "persist" not in contract({**policy, "persist": False}).to_json()["policies"][0]  # type: ignore[index]


@pytest.mark.parametrize("kind", [{"kind": "log", "window": "1s"}, {"kind": "concurrency"}])
def test_logs_and_open_requests_do_not_persist(kind: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"policies\[0\]\.persist"):
        contract({"name": "p", "quota": 1, "persist": True, **kind})


def test_persist_needs_a_directory_and_decisions_of_this_node() -> None:
    with pytest.raises(BadInput, match=r"policies\.burst\.persist: True: needs the mode \"local\" and a directory"):
        ContractStore(Decisions(Limiter())).put_all([contract(BURST)])
    with pytest.raises(BadInput, match=r"policies\.burst\.persist"):
        check_for_brokers(contract(BURST))


def test_only_the_service_may_read_its_database(tmp_path: Path) -> None:
    with no_umask(), started(tmp_path, Clocks(0)):
        found = modes(tmp_path)
    assert FILE in found
    assert set(found.values()) == {OWNER_ALONE}
