"""What was asked of each contract here, reported as it changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.snapshot import Contract
from broker.sync.differences import Differences
from srtm.control import ContractCounts


class CountReports(Differences[tuple[str, str], ContractCounts]):
    """By namespace and subject. Counts are since the contract was set or changed here."""

    def note_contracts(self, contracts: Iterable[Contract]) -> None:
        self.note(
            {
                (contract.namespace, contract.subject): ContractCounts(
                    namespace=contract.namespace,
                    subject=contract.subject,
                    counts=[(policy.allowed, policy.refused, policy.cost) for policy in contract.policies],
                )
                for contract in contracts
                if any(policy.allowed or policy.refused for policy in contract.policies)
                or (contract.namespace, contract.subject) in self.known
            }
        )
