"""Contracts of brokers: stored and versioned, told to each broker once, named by topics only where they are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio
from fastapi import FastAPI

from broker.leases.contract_holder import ContractHolder
from distributor.api.contract_routes import add_contract_routes
from distributor.registry.contract_requests import missing
from distributor.storage import cluster_rows
from distributor.views.topic_view import publishers_view
from srtm.contracts.contract import Contract, read_contract
from srtm.contracts.versioned import Contracts, Key, Versioned
from srtm.control import BrokerContracts, ContractCounts, ContractTerms, SyncRequest
from srtm.errors import BadInput, Conflict, NotFound
from srtm.log import Log
from tests.support.distributor_in_process import Distributor, spec
from tests.support.fake_engine import FakeEngine

pytestmark = pytest.mark.usefixtures("no_threads")

REQUEST = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=600.0)


def contract(namespace: str = "sensors", subject: str = "*", **changes: Any) -> Contract:
    policies = [{"name": "burst", "rate": 10, "burst": 5}]
    return read_contract({"namespace": namespace, "subject": subject, "policies": policies, **changes})


@pytest.fixture
async def distributor(tmp_path: Path):
    opened = await Distributor.open(tmp_path / "s.sqlite3")
    yield opened
    await opened.aclose()


async def test_contracts_are_what_they_were_after_a_restart(distributor: Distributor, tmp_path: Path) -> None:
    registry = distributor.registry
    await registry.put_contracts([contract(), contract("gateways"), contract("old")])
    await registry.remove_contract("old", "*", None)
    before = registry.contracts
    await distributor.aclose()
    again = await Distributor.open(tmp_path / "s.sqlite3")
    assert again.registry.contracts == before
    assert [each.contract.namespace for each in before.all()] == ["gateways", "sensors"]
    assert before.version > before.all()[0].version
    await again.aclose()


async def test_the_same_contract_again_changes_nothing(distributor: Distributor) -> None:
    registry = distributor.registry
    await registry.put_contracts([contract()])
    version = registry.version
    await registry.put_contracts([contract()])
    assert registry.version == version


async def test_a_change_is_refused_if_the_contract_was_changed_since(distributor: Distributor) -> None:
    registry = distributor.registry
    first = await registry.put_contract(contract(), None)
    second = await registry.put_contract(contract(shadow=True), first.etag)
    with pytest.raises(Conflict, match="read it again"):
        await registry.put_contract(contract(), first.etag)
    with pytest.raises(Conflict, match="read it again"):
        await registry.remove_contract("sensors", "*", first.etag)
    with pytest.raises(NotFound):
        await registry.remove_contract("sensors", "x", None)
    await registry.remove_contract("sensors", "*", second.etag)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mode": "exact"}, "mode"),
        ({"mode": "replicated", "on_partition": "share"}, "on_partition"),
        (
            {
                "mode": "replicated",
                "policies": [{"name": "w", "kind": "window", "quota": 1, "window": "1s", "slices": 1}],
            },
            "policies.w.kind",
        ),
        ({"policies": [{"name": "p", "kind": "pace", "rate": 1, "max_wait": "1s"}]}, "policies.p.kind"),
        ({"policies": [{"name": "p", "kind": "concurrency", "quota": 1}]}, "policies.p.kind"),
    ],
)
async def test_what_brokers_cannot_enforce_is_refused_and_none_of_the_file_is_taken(
    distributor: Distributor, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        await distributor.registry.put_contracts([contract("good"), contract(**changes)])
    assert refused.value.field == field
    assert distributor.registry.contracts.all() == []


async def test_a_broker_is_told_all_contracts_once_and_an_older_one_none(distributor: Distributor) -> None:
    await distributor.registry.put_contracts([contract(), contract("gateways")])
    older = await distributor.syncing.sync("a", REQUEST)
    assert older.contracts is None
    told = (await distributor.syncing.sync("b", msgspec.structs.replace(REQUEST, contracts=0))).contracts
    assert told is not None
    assert [(each.namespace, each.subject) for each in told.contracts] == [("gateways", "*"), ("sensors", "*")]
    assert msgspec.json.decode(told.contracts[1].core)["policies"][0]["burst_micro"] == 5_000_000
    again = await distributor.syncing.sync("b", msgspec.structs.replace(REQUEST, contracts=told.version))
    assert again.contracts is None
    await distributor.registry.remove_contract("gateways", "*", None)
    less = (await distributor.syncing.sync("b", msgspec.structs.replace(REQUEST, contracts=told.version))).contracts
    assert less is not None
    assert [each.namespace for each in less.contracts] == ["sensors"]


async def test_a_broker_that_takes_differences_is_told_only_what_has_changed(distributor: Distributor) -> None:
    registry = distributor.registry

    async def told(have: int, *, takes_differences: bool = True) -> BrokerContracts:
        request = msgspec.structs.replace(REQUEST, contracts=have, takes_contract_differences=takes_differences)
        news = (await distributor.syncing.sync("b", request)).contracts
        assert news is not None
        return news

    def names(news: BrokerContracts) -> list[str]:
        return [each.namespace for each in news.contracts]

    await registry.put_contracts([contract(f"n{number}") for number in range(5)])
    first = await told(0)
    assert (first.since, names(first)) == (0, ["n0", "n1", "n2", "n3", "n4"])
    await registry.put_contracts([contract("n1", shadow=True), contract("new")])
    await told(first.version)
    await registry.remove_contract("n3", "*", None)
    news = await told(first.version)
    assert (news.since, names(news), news.removed) == (first.version, ["n1", "new"], [("n3", "*")])
    assert news.version == registry.contracts.version
    assert len(names(await told(-1))) == len(names(await told(first.version, takes_differences=False))) == 5
    holder = ContractHolder("b", cast("Any", FakeEngine()), Log("b", print))
    holder.apply(first)
    holder.apply(news)
    everything = await told(0)
    assert holder.all_with(BrokerContracts(version=9, since=holder.version)).contracts == [
        *(each for each in everything.contracts if each.namespace != "new"),
        *(each for each in everything.contracts if each.namespace == "new"),
    ]


async def test_a_broker_that_has_not_asked_for_long_is_told_all(distributor: Distributor) -> None:
    await distributor.registry.put_contracts([contract(), contract("other")])
    request = msgspec.structs.replace(REQUEST, contracts=0, takes_contract_differences=True)
    first = (await distributor.syncing.sync("b", request)).contracts
    assert first is not None
    for number in range(20):
        await distributor.registry.put_contracts([contract(shadow=number % 2 == 0)])
        await distributor.syncing.sync("a", request)
    late = (await distributor.syncing.sync("b", msgspec.structs.replace(request, contracts=first.version))).contracts
    assert late is not None
    assert (late.since, len(late.contracts)) == (0, 2)


@pytest.mark.parametrize("mode", [{}, {"mode": "replicated"}])
async def test_a_broker_is_told_whether_a_contract_is_replicated(
    distributor: Distributor, mode: dict[str, str]
) -> None:
    await distributor.registry.put_contracts([contract(**mode)])
    told = await distributor.syncing.sync("a", msgspec.structs.replace(REQUEST, contracts=0))
    assert told.contracts is not None
    assert told.contracts.contracts[0].replicated == bool(mode)


async def test_a_change_of_contracts_is_news_to_every_broker(distributor: Distributor) -> None:
    (broker,) = await distributor.brokers("a")
    assert (await broker.sync()).unchanged
    await distributor.registry.put_contracts([contract()])
    assert not (await broker.sync()).unchanged


async def test_a_topic_that_names_no_contract_that_is_there_is_refused(distributor: Distributor) -> None:
    await distributor.brokers("a", "b")
    block = {"count": 2, "rate": 1, "contract": "sensors"}
    for changes, field in [
        ({"contracts": {"publishers": "sensors"}}, "contracts.publishers"),
        ({"contracts": {"consumers": "sensors"}}, "contracts.consumers"),
        ({"contracts": {"tenant": "acme"}}, "contracts.tenant"),
        ({"publishers": [block]}, "publishers.contract"),
    ]:
        with pytest.raises(BadInput) as refused:
            await distributor.submit(spec(**changes))
        assert refused.value.field == field
    await distributor.registry.put_contracts([contract(), contract("tenants", "ac*")])
    await distributor.submit(spec(publishers=[block], contracts={"tenant": "acme"}))
    with pytest.raises(Conflict, match="topic 'cars'"):
        await distributor.registry.remove_contract("sensors", "*", None)
    with pytest.raises(Conflict, match=r"contracts\.tenant"):
        await distributor.registry.remove_contract("tenants", "ac*", None)
    await distributor.registry.remove("cars", purge=False)
    await distributor.registry.remove_contract("sensors", "*", None)


async def test_each_broker_is_told_the_contracts_of_its_own_publishers(distributor: Distributor) -> None:
    brokers = await distributor.brokers("a", "b")
    await distributor.registry.put_contracts([contract(), contract("gateways"), contract("tenants", "acme")])
    blocks = [
        {"count": 60, "rate": 10, "id_prefix": "s-", "contract": "sensors"},
        {"count": 20, "rate": 10, "id_prefix": "g-", "contract": "gateways"},
        {"count": 20, "rate": 10, "id_prefix": "o-"},
    ]
    await distributor.submit(spec(publishers=blocks, contracts={"publishers": "sensors", "tenant": "acme"}))
    named: list[str] = []
    for broker in brokers:
        await broker.settle()
        terms = broker.topics["cars"].terms
        assert (terms.publishers, terms.tenant) == ("sensors", "acme")
        assert set(terms.named["gateways"]) <= set(broker.topics["cars"].publishers)
        named += terms.named["gateways"]
    assert sorted(named) == sorted(f"g-{number}" for number in range(20)), "the others are under the topic's"


async def test_a_change_of_contracts_alone_is_stored_and_told_and_moves_nobody(
    distributor: Distributor, tmp_path: Path
) -> None:
    (broker,) = await distributor.brokers("a")
    await distributor.registry.put_contracts([contract(), contract("gateways")])
    blocks = [{"count": 3, "rate": 1, "contract": "sensors"}, {"count": 1, "rate": 1, "id_prefix": "g"}]
    await distributor.submit(spec(publishers=blocks))
    await broker.settle()
    assert broker.topics["cars"].terms.named == {"sensors": ["publisher-0", "publisher-1", "publisher-2"]}
    assert publishers_view(distributor.registry.topic("cars"), distributor.registry, None).contracts[2:] == [
        "sensors",
        "",
    ]
    before = distributor.registry.topic("cars").placement.ids_of
    await distributor.submit(spec(publishers=[blocks[0], {**blocks[1], "contract": "gateways"}]))
    await broker.settle()
    assert broker.topics["cars"].terms.named["gateways"] == ["g0"]
    assert distributor.registry.topic("cars").placement.ids_of == before
    again = await cluster_rows.load(distributor.store)
    assert again.topics["cars"].spec == distributor.registry.topic("cars").spec


async def test_where_all_publishers_name_one_contract_it_holds_for_undeclared_ones_too(
    distributor: Distributor,
) -> None:
    (broker,) = await distributor.brokers("a")
    await distributor.registry.put_contracts([contract()])
    await distributor.submit(spec(publishers=[{"count": 3, "rate": 1, "contract": "sensors"}]))
    await broker.settle()
    assert broker.topics["cars"].terms == ContractTerms(publishers="sensors")


async def test_counts_of_all_brokers_are_kept_until_a_broker_starts_again(distributor: Distributor) -> None:
    def counted(*counts: tuple[int, int, int]) -> SyncRequest:
        reported = [ContractCounts(namespace="sensors", subject="*", counts=list(counts))]
        return msgspec.structs.replace(REQUEST, number=1, contract_counts=reported)

    await distributor.registry.put_contracts([contract()])
    syncing = distributor.syncing
    await syncing.sync("a", counted((3, 1, 9)))
    await syncing.sync("a", msgspec.structs.replace(REQUEST, number=2, reports_since=1))
    assert syncing.sessions.of("a").contract_counts == {("sensors", "*"): [(3, 1, 9)]}
    await syncing.sync("a", msgspec.structs.replace(REQUEST, incarnation="2", number=1))
    assert syncing.sessions.of("a").contract_counts == {}


async def test_counts_of_contracts_that_are_gone_do_not_gather(distributor: Distributor) -> None:
    registry, syncing = distributor.registry, distributor.syncing
    await registry.put_contracts([contract()])
    for number in range(1, 30):
        subject = f"of day {number}"
        await registry.put_contracts([contract(subject=subject)])
        reported = [ContractCounts(namespace="sensors", subject=subject, counts=[(1, 0, 1)])]
        await syncing.sync("a", msgspec.structs.replace(REQUEST, number=number, contract_counts=reported))
        await registry.remove_contract("sensors", subject, None)
    assert len(syncing.sessions.of("a").contract_counts) <= 2


def test_many_topics_are_checked_without_a_look_at_all_contracts_for_each() -> None:
    class Counted(dict):  # type: ignore[type-arg]
        looks = 0

        def __iter__(self) -> Iterator[Key]:
            Counted.looks += 1
            return super().__iter__()

        def items(self) -> Any:
            Counted.looks += 1
            return super().items()

    contracts = Contracts(1, Counted({("tenants", "*"): Versioned(contract("tenants"), 1)}))
    for number in range(100):
        named = spec(name=f"t{number}", contracts={"tenant": "acme", "publishers": "none"})
        assert list(missing(named, contracts)) == [("contracts.publishers", "none")]
    assert Counted.looks <= 2


async def test_one_contract_of_many_changes_without_the_others_being_made_again(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    to_core = Contract.to_core
    monkeypatch.setattr(Contract, "to_core", lambda one: made.append(one.namespace) or to_core(one))
    await distributor.registry.put_contracts([contract(f"n{number}") for number in range(20)])
    first = (await distributor.syncing.sync("a", msgspec.structs.replace(REQUEST, contracts=0))).contracts
    assert len(made) == 20
    await distributor.registry.put_contracts([contract("n3", shadow=True)])
    then = (await distributor.syncing.sync("a", msgspec.structs.replace(REQUEST, contracts=0))).contracts
    assert made[20:] == ["n3"]
    changed = [new.namespace for old, new in zip(first.contracts, then.contracts, strict=True) if old != new]
    assert changed == ["n3"]


async def test_a_listing_lets_other_tasks_have_their_turns(distributor: Distributor, nursery: trio.Nursery) -> None:
    await distributor.registry.put_contracts([contract(f"n{number}") for number in range(50)])
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    app = FastAPI()
    add_contract_routes(app, distributor.registry, distributor.syncing)
    [listing] = [route.endpoint for route in app.routes if route.path == "/v1/contracts" and "GET" in route.methods]
    nursery.start_soon(other)
    answer = await listing()
    assert len(msgspec.json.decode(answer.body)) == 50
    assert turns >= 40
