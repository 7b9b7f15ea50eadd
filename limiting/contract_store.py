"""The contracts of the service: in force in its decisions, with a version each, and kept in a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import Contract, read_contracts
from srtm.errors import BadInput, Conflict, NotFound, Unavailable
from srtm.net.json_file import read_json

_FILE = "contracts.json"
MOST_CONTRACTS = 100_000


class Versioned(NamedTuple):
    """A contract in force. Its version grows with every change of any contract."""

    contract: Contract
    version: int

    @property
    def etag(self) -> str:
        """The version as an entity tag (RFC 9110, section 8.8.3)."""
        return f'"{self.version}"'


class _Saved(msgspec.Struct):
    version: int
    contracts: list[tuple[int, dict[str, object]]]


class ContractStore:
    """All contracts. ``data``: the directory of their file; None: they are not kept."""

    def __init__(self, decisions: Decisions, data: Path | None = None) -> None:
        self._decisions = decisions
        self._file = None if data is None else data / _FILE
        self._all: dict[tuple[str, str], Versioned] = {}
        self._namespaces: set[str] = set()
        self._version = 0
        if self._file is not None:
            self._load(self._file)

    def _load(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        saved = read_json(file, _Saved, "data", "the contracts of a limit service")
        if saved is None:
            return
        self._version = saved.version
        for contract, (version, _) in zip(
            read_contracts([document for _, document in saved.contracts]), saved.contracts, strict=True
        ):
            self._enforce(Versioned(contract, version))

    def _enforce(self, versioned: Versioned) -> None:
        self._decisions.put(versioned.contract)
        self._all[versioned.contract.key] = versioned
        self._namespaces.add(versioned.contract.namespace)

    def all(self) -> list[Versioned]:
        """All contracts, by namespace and pattern."""
        return [self._all[key] for key in sorted(self._all)]

    def get(self, namespace: str, pattern: str) -> Versioned:
        """The contract of a pattern. Raises NotFound."""
        try:
            return self._all[namespace, pattern]
        except KeyError:
            raise NotFound("contract", f"{namespace} {pattern}") from None

    def put(self, contract: Contract, expected: str | None = None) -> Versioned:
        """Put a contract in force and keep it. The same one again changes nothing.

        ``expected``: the entity tag that the present one must have; ``*``: any. Raises BadInput, Conflict, Unavailable.
        """
        known = self._all.get(contract.key)
        self._check_tag(known, expected)
        if known is not None and known.contract == contract:
            return known
        self.put_all([contract])
        return self._all[contract.key]

    def put_all(self, contracts: Iterable[Contract]) -> None:
        """Put several in force and keep them: all, or none if one cannot be. Raises BadInput, Unavailable."""
        changed = [each for each in contracts if (known := self._all.get(each.key)) is None or known.contract != each]
        for contract in changed:
            self._decisions.check_served(contract)
        if len(self._all.keys() | {contract.key for contract in changed}) > MOST_CONTRACTS:
            raise BadInput("contracts", len(self._all) + len(changed), f"must be at most {MOST_CONTRACTS} in all")
        if not changed:
            return
        version = self._version + 1
        after = self._all | {contract.key: Versioned(contract, version) for contract in changed}
        self._save(after, version)
        for contract in changed:
            self._decisions.put(contract)
        self._use(after, version)

    def remove(self, namespace: str, pattern: str, expected: str | None = None) -> None:
        """Remove a contract and its subjects. Raises NotFound, Conflict, Unavailable."""
        known = self.get(namespace, pattern)
        self._check_tag(known, expected)
        after = {key: each for key, each in self._all.items() if key != known.contract.key}
        self._save(after, self._version + 1)
        self._decisions.remove(namespace, pattern)
        self._use(after, self._version + 1)

    def _use(self, contracts: dict[tuple[str, str], Versioned], version: int) -> None:
        self._all, self._version = contracts, version
        self._namespaces = {namespace for namespace, _ in contracts}

    def knows(self, namespace: str) -> bool:
        """Whether a namespace has contracts."""
        return namespace in self._namespaces

    def _check_tag(self, known: Versioned | None, expected: str | None) -> None:
        if expected is None or (expected == "*" and known is not None):
            return
        if known is None or known.etag != expected:
            there = "there is none" if known is None else f"it is {known.etag} now"
            raise Conflict("If-Match", expected, f"must be the contract's entity tag: {there}; read it again")

    def _save(self, contracts: dict[tuple[str, str], Versioned], version: int) -> None:
        """Replace the file, which is complete or not changed. Raises Unavailable."""
        if self._file is None:
            return
        saved = _Saved(version, [(each.version, each.contract.to_json()) for each in contracts.values()])
        fresh = self._file.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(saved))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
        except OSError as error:
            raise Unavailable(f"{self._file}: the contracts cannot be kept ({error.strerror})") from error
