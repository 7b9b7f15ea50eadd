"""What a check says."""

from __future__ import annotations

from typing import NamedTuple

from srtm.contracts.contract import Contract, Mode


class PolicyVerdict(NamedTuple):
    """What one policy says of a check."""

    name: str
    allowed: bool
    remaining: int  # whole tokens after the check
    wait_ns: int | None  # refused: when the cost may be there; allowed: how long to wait first (``pace``). None: never
    reset_ns: int | None  # when everything is there again


class Verdict(NamedTuple):
    """What a contract says of a check."""

    allowed: bool
    contract: Contract
    policies: tuple[PolicyVerdict, ...]  # in the contract's order
    wait_ns: int | None  # the longest of those that refuse, else of all; None: never
    grant: bytes | None  # for a correction or release; None: refused, or only looked
    shared: bool = False  # the namespace has no room for another subject: this one shares with others
    shadowed: bool = False  # a shadow contract refuses, and lets it pass
    mode: Mode = "local"  # how it was decided
    degraded: bool = False  # without the store, which did not answer: as the contract's ``on_failure`` says

    @property
    def violated(self) -> tuple[str, ...]:
        """The names of the policies that refuse."""
        return tuple(policy.name for policy in self.policies if not policy.allowed)
