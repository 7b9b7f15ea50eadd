"""Holds the contracts that this broker enforces: takes them, or what differs, from the distributor, tells the engine.

Synchronous, without network. What clients have used is in the engine, and survives a change of their contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from srtm.control import BrokerContract, BrokerContracts
from srtm.errors import PeerError
from srtm.log import Log

if TYPE_CHECKING:
    from srtm._native import Engine

_UNKNOWN = -1  # version of what an earlier incarnation left: the distributor tells everything


class ContractHolder:
    """``version`` is that of the contracts in force; 0: there are none."""

    def __init__(self, name: str, engine: Engine, log: Log) -> None:
        self._name = name
        self._engine = engine
        self._log = log
        self._in_force: dict[tuple[str, str], BrokerContract] = {}
        self.version = 0
        self.has_joined = False  # an answer of the distributor is in force in this incarnation
        self.rejoins = False  # other brokers may have held a replicated contract before this one did
        self.replicates = trio.Event()  # any contract is replicated
        self.members: dict[str, str] = {}  # {other broker: HOST:PORT of its HTTP}
        self.has_met = trio.Event()  # the distributor told them in this incarnation

    @property
    def is_empty(self) -> bool:
        return not self._in_force

    def meet(self, addresses: Mapping[str, str]) -> None:
        """Take where brokers are that live, this one among them."""
        self.members = {broker: address for broker, address in addresses.items() if broker != self._name}
        self.has_met.set()

    def hold(self, contracts: BrokerContracts) -> None:
        """At the start: enforce what the last incarnation was told, until the first sync."""
        self.apply(contracts)
        self.version = _UNKNOWN if contracts.contracts else 0

    def all_with(self, news: BrokerContracts) -> BrokerContracts:
        """All contracts once ``news`` are in force. Raises PeerError if they are differences from others."""
        if not news.since:
            return news
        if news.since != self.version:
            raise PeerError(f"differences from contracts {news.since}, and {self.version} are in force")
        gone = set(news.removed)
        after = {key: each for key, each in self._in_force.items() if key not in gone}
        after.update(((each.namespace, each.subject), each) for each in news.contracts)
        return BrokerContracts(version=news.version, contracts=list(after.values()))

    def apply(self, news: BrokerContracts) -> None:
        """Enforce all contracts with ``news``, and no others. Raises PeerError, as ``all_with``.

        One that this version cannot read is logged, and holds nobody: the distributor may be newer.
        """
        contracts = self.all_with(news)
        wanted = {(each.namespace, each.subject): each for each in contracts.contracts}
        for key in self._in_force.keys() - wanted.keys():
            self._engine.remove_contract(*key)
            del self._in_force[key]
        changed = {key: each for key, each in wanted.items() if self._in_force.get(key) != each}
        self._set(list(changed.values()))
        self._in_force.update(changed)
        self.version = contracts.version
        if any(contract.replicated for contract in wanted.values()):
            self.replicates.set()
        elif self.replicates.is_set():
            self.replicates = trio.Event()

    def _set(self, contracts: Sequence[BrokerContract]) -> None:
        """Until this broker has joined the others, these may have held the contracts before."""
        self.rejoins |= not self.has_joined and any(contract.replicated for contract in contracts)
        those = [(bytes(contract.core), contract.replicated) for contract in contracts]
        refused = self._engine.set_contracts(those, rejoins=not self.has_joined)
        for contract, reason in zip(contracts, refused, strict=True):
            if reason is not None:
                self._engine.remove_contract(contract.namespace, contract.subject)
                where = f"{contract.namespace} {contract.subject}"
                self._log.warning("a contract is not enforced here", contract=where, reason=reason)
