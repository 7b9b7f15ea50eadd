"""The contracts that a broker enforces are those that it was told last, also before its first sync."""

from __future__ import annotations

import msgspec
import pytest

from broker.leases.contract_holder import ContractHolder
from srtm.control import BrokerContract, BrokerContracts
from srtm.errors import PeerError
from srtm.log import Log
from tests.support.fake_engine import FakeEngine


def contract(namespace: str, core: object = None) -> BrokerContract:
    body = core or {"namespace": namespace, "subject": "*", "policies": [{"name": "p"}], "shadow": False}
    return BrokerContract(namespace=namespace, subject="*", core=msgspec.Raw(msgspec.json.encode(body)))


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def holder(engine: FakeEngine, lines: list[str]) -> ContractHolder:
    return ContractHolder("b", engine, Log("b", lines.append))  # type: ignore[arg-type]


def test_only_what_differs_is_told_to_the_engine(holder: ContractHolder, engine: FakeEngine) -> None:
    holder.apply(BrokerContracts(version=4, contracts=[contract("a"), contract("b")]))
    changed = {"namespace": "b", "subject": "*", "policies": [{"name": "q"}], "shadow": True}
    engine.calls.clear()
    holder.apply(BrokerContracts(version=5, contracts=[contract("b", changed), contract("c")]))
    assert engine.calls == [("remove_contract", "a", "*"), ("set_contract", "b", "*"), ("set_contract", "c", "*")]
    assert (holder.version, holder.is_empty) == (5, False)


def test_differences_are_put_in_force_and_those_from_other_contracts_are_refused(
    holder: ContractHolder, engine: FakeEngine
) -> None:
    holder.apply(BrokerContracts(version=4, contracts=[contract("a"), contract("b"), contract("c")]))
    engine.calls.clear()
    changed = contract("b", {"namespace": "b", "subject": "*", "policies": [{"name": "q"}], "shadow": True})
    news = BrokerContracts(version=6, since=4, contracts=[changed, contract("d")], removed=[("c", "*"), ("z", "*")])
    assert holder.all_with(news) == BrokerContracts(version=6, contracts=[contract("a"), changed, contract("d")])
    holder.apply(news)
    assert engine.calls == [("remove_contract", "c", "*"), ("set_contract", "b", "*"), ("set_contract", "d", "*")]
    with pytest.raises(PeerError, match="differences from contracts 4, and 6 are in force"):
        holder.apply(news)
    assert (holder.version, len(engine.calls)) == (6, 3)


def test_what_an_earlier_incarnation_left_is_enforced_and_asked_for_again(
    holder: ContractHolder, engine: FakeEngine
) -> None:
    holder.hold(BrokerContracts(version=4, contracts=[contract("a")]))
    assert (holder.version, list(engine.contracts_in_force)) == (-1, [("a", "*")])
    holder.apply(BrokerContracts(version=0))
    assert (holder.version, engine.contracts_in_force, holder.is_empty) == (0, {}, True)


def test_other_brokers_may_have_held_what_comes_before_and_with_the_first_answer(
    holder: ContractHolder, engine: FakeEngine
) -> None:
    holder.hold(BrokerContracts(version=4, contracts=[contract("a")]))
    holder.apply(BrokerContracts(version=5, contracts=[contract("a"), contract("b")]))
    holder.has_joined = True
    holder.apply(BrokerContracts(version=6, since=5, contracts=[contract("c")]))
    assert {key[0]: each["rejoins"] for key, each in engine.contracts_in_force.items()} == {
        "a": True,
        "b": True,
        "c": False,
    }


def test_a_contract_that_this_version_cannot_read_is_logged_and_stops_nothing(
    holder: ContractHolder, engine: FakeEngine, lines: list[str]
) -> None:
    holder.apply(BrokerContracts(version=4, contracts=[contract("a")]))
    newer = {"namespace": "a", "subject": "*", "rules": []}
    holder.apply(BrokerContracts(version=5, contracts=[contract("a", newer), contract("b")]))
    assert list(engine.contracts_in_force) == [("b", "*")]
    assert holder.version == 5
    assert len(lines) == 1
    assert "is not enforced here" in lines[0]
