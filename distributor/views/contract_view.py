"""A contract as operators see it: its document, and what was asked of it at all brokers together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from distributor.sync.service import SyncService
from srtm.contracts.contract import Mode, OnFailure, OnPartition
from srtm.contracts.versioned import Versioned


class PolicyCounts(msgspec.Struct):
    """What was asked of a policy since its contract was set or changed, or the brokers started."""

    allowed: int = 0  # publishes
    refused: int = 0  # publishes; under a shadow contract they passed
    cost: int = 0  # messages of the allowed ones


class ContractView(msgspec.Struct):
    """The document of a contract, its version, and ``counts`` of each policy."""

    namespace: str
    subject: str
    mode: Mode | None
    on_partition: OnPartition
    on_failure: OnFailure
    shadow: bool
    starts: Literal["full", "empty"]
    policies: list[dict[str, Any]]
    version: int
    counts: list[PolicyCounts]


class ContractRows(msgspec.Struct, kw_only=True):
    """One screen of the list of contracts. ``total``: those that match; ``all``: those that there are."""

    total: int
    all: int
    counts: dict[str, int]  # as other lists have: by state, and contracts have none
    rows: Sequence[ContractView]


def found(contracts: Iterable[Versioned], search: str) -> list[Versioned]:
    """Those that have ``search`` in their namespace and pattern, with a space between."""
    return [each for each in contracts if search in " ".join(each.contract.key)]


def contract_view(versioned: Versioned, syncing: SyncService) -> ContractView:
    """Counts are what brokers that are known to this process have reported."""
    contract, key = versioned.contract, versioned.contract.key
    counts = [PolicyCounts() for _ in contract.policies]
    for session in syncing.sessions.by_broker.values():
        reported = session.contract_counts.get(key, [])
        for total, (allowed, refused, cost) in zip(counts, reported, strict=False):  # may be of an earlier version
            total.allowed += allowed
            total.refused += refused
            total.cost += cost
    document = {**contract.to_json(), "version": versioned.version, "counts": counts}
    return msgspec.convert(document, ContractView, from_attributes=True)
