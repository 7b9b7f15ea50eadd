"""What was asked of contracts is reported as it changes, and all of it to a distributor that does not know it."""

from __future__ import annotations

from broker.snapshot import Contract, PolicyCounts
from broker.sync.contract_counts import CountReports


def contract(namespace: str, allowed: int, refused: int = 0) -> Contract:
    policies = [PolicyCounts(name="burst", allowed=allowed, refused=refused, cost=allowed)]
    return Contract(namespace=namespace, subject="*", shadow=False, policies=policies)


def names(reports: CountReports, *contracts: Contract) -> list[str]:
    reports.note_contracts(contracts)
    return [namespace for namespace, _ in reports.unsent]


def test_only_changes_are_sent_once_they_are_known() -> None:
    reports = CountReports()
    assert names(reports, contract("a", 1), contract("b", 0, 1), contract("unused", 0)) == ["a", "b"]
    assert names(reports, contract("a", 1), contract("b", 0, 1)) == ["a", "b"], "the first was not answered"
    reports.answered()
    assert names(reports, contract("a", 2), contract("b", 0, 1)) == ["a"]
    reports.answered()
    assert names(reports, contract("a", 2), contract("b", 0, 1)) == []
    assert names(reports, contract("a", 0), contract("b", 0, 1)) == ["a"], "it was changed, and is counted anew"
    reports.answered()
    reports.send_again()
    assert names(reports, contract("a", 2), contract("b", 0, 1)) == ["a", "b"]
