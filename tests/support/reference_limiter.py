"""The decisions of ``srtm/contracts/reference.py`` for many subjects, with which the Rust core is compared."""

from __future__ import annotations

from srtm.contracts.contract import Contract
from srtm.contracts.reference import Meter, Now, decided, meter
from srtm.contracts.verdict import Verdict


class ReferenceLimiter:
    """All subjects of one contract."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._meters: dict[str, list[Meter]] = {}

    def meters(self, subject: str, now: Now) -> list[Meter]:
        """The meters of a subject, in the contract's order."""
        fresh = [meter(policy, self._contract.starts_full, now) for policy in self._contract.policies]
        return self._meters.setdefault(subject, fresh)

    def check(self, subject: str, cost: int, now: Now) -> Verdict:
        """Ask all policies for ``cost``, and take it from all or from none."""
        return decided(self._contract, self.meters(subject, now), cost, now)
