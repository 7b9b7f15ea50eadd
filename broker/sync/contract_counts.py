"""What was asked of each contract here, reported as it changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.snapshot import Contract
from srtm.control import ContractCounts


class CountReports:
    """Counts are since the contract was set or changed here."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], ContractCounts] = {}  # to the distributor
        self._sent: list[ContractCounts] = []

    def unsent(self, contracts: Iterable[Contract]) -> list[ContractCounts]:
        """Those that differ from what the distributor knows; it knows them once ``answered``."""
        now = [
            ContractCounts(
                namespace=contract.namespace,
                subject=contract.subject,
                counts=[(policy.allowed, policy.refused, policy.cost) for policy in contract.policies],
            )
            for contract in contracts
            if any(policy.allowed or policy.refused for policy in contract.policies)
            or (contract.namespace, contract.subject) in self._known
        ]
        self._sent = [each for each in now if self._known.get((each.namespace, each.subject)) != each]
        return self._sent

    def answered(self) -> None:
        """The latest request was answered."""
        self._known.update(((each.namespace, each.subject), each) for each in self._sent)
        self._sent = []

    def send_again(self) -> None:
        """The distributor lacks what was reported."""
        self._known.clear()
