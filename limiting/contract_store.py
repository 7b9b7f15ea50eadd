"""The contracts of the service: in force in its decisions, with a version each, and kept in a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import trio

from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import Contract, read_contracts
from srtm.contracts.versioned import Versioned, check_tag
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.net.json_file import read_json
from srtm.web.bodies import in_portions

_FILE = "contracts.json"
MOST_CONTRACTS = 100_000
_PORTION = 20  # contracts between two turns of other tasks: some ms


@dataclass(frozen=True, slots=True)
class Kept(Versioned):
    """A contract with itself as JSON."""

    document: msgspec.Raw


def _with_document(contract: Contract, version: int) -> Kept:
    return Kept(contract, version, msgspec.Raw(msgspec.json.encode(contract.to_json())))


class _Saved(msgspec.Struct):
    version: int
    contracts: list[tuple[int, dict[str, object]]]


class _Written(msgspec.Struct):
    """``_Saved``, of documents that are JSON already."""

    version: int
    contracts: list[tuple[int, msgspec.Raw]]


class ContractStore:
    """All contracts. ``data``: the directory of their file; None: they are not kept."""

    def __init__(self, decisions: Decisions, data: Path | None = None) -> None:
        self._decisions = decisions
        self._file = None if data is None else data / _FILE
        self._all: dict[tuple[str, str], Kept] = {}
        self._namespaces: set[str] = set()
        self._kept: dict[tuple[str, str], Kept] = {}  # with those of ``submit`` that are not in force yet
        self._version = 0
        self._submitting = trio.Lock()
        if self._file is not None:
            self._load(self._file)

    def _load(self, file: Path) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule = f"must be a directory that can be written ({error.strerror})"
            raise BadInput("data", str(file.parent), rule) from error
        saved = read_json(file, _Saved, "data", "the contracts of a limit service")
        if saved is None:
            return
        self._version = saved.version
        for contract, (version, _) in zip(
            read_contracts([document for _, document in saved.contracts]), saved.contracts, strict=True
        ):
            self._enforce(_with_document(contract, version))
        self._kept = dict(self._all)

    def _enforce(self, versioned: Kept) -> None:
        self._decisions.put(versioned.contract)
        self._all[versioned.contract.key] = versioned
        self._namespaces.add(versioned.contract.namespace)

    def all(self) -> list[Kept]:
        """All contracts, by namespace and pattern."""
        return [self._all[key] for key in sorted(self._all)]

    def present(self, contracts: Iterable[Kept]) -> Iterator[Kept]:
        """``contracts`` as they are at the moment when each is asked for, without those that are gone then."""
        for each in contracts:
            found = self._all.get(each.contract.key)
            if found is not None:
                yield found

    def get(self, namespace: str, pattern: str) -> Kept:
        """The contract of a pattern. Raises NotFound."""
        try:
            return self._all[namespace, pattern]
        except KeyError:
            raise NotFound("contract", f"{namespace} {pattern}") from None

    def put(self, contract: Contract, expected: str | None = None) -> Kept:
        """Put a contract in force and keep it. The same one again changes nothing.

        ``expected``: the entity tag that the present one must have; ``*``: any. Raises BadInput, Conflict, Unavailable.
        """
        known = self._kept.get(contract.key)
        check_tag(known, expected)
        if known is None or known.contract != contract:
            self._decisions.check_served(contract)
            self.put_all([contract])
        elif self._all.get(contract.key) is not known:  # a submission has not come to it yet
            self._enforce(known)
        return self._all[contract.key]

    def put_all(self, contracts: Iterable[Contract]) -> None:
        """Put several in force and keep them: all, or none if one cannot be. Raises BadInput, Unavailable."""
        served = [self._served(place, each) for place, each in enumerate(contracts) if self._changes(each)]
        changed = {each.contract.key: each for each in served}
        made = [replace(each, version=self._version + 1) for each in changed.values()]
        self._keep(made)
        for versioned in made:
            self._enforce(versioned)

    async def submit(self, contracts: Iterable[Contract]) -> list[Kept]:
        """As ``put_all``, of many: other tasks get their turns. A change that comes meanwhile stays.

        Returns the contracts as they are kept. Raises BadInput, Unavailable.
        """
        wanted = list(contracts)
        async with self._submitting:
            numbered = enumerate(wanted)
            made = await in_portions(self._served(place, each) for place, each in numbered if self._changes(each))
            if made:
                await self._keep_apart(made)
        kept = [self._kept[contract.key] for contract in wanted]
        for number, versioned in enumerate(kept):
            if self._kept.get(versioned.contract.key) is versioned is not self._all.get(versioned.contract.key):
                self._enforce(versioned)
                if number % _PORTION == 0:
                    await trio.lowlevel.checkpoint()
        return kept

    def _changes(self, contract: Contract) -> bool:
        known = self._kept.get(contract.key)
        return known is None or known.contract != contract

    def _served(self, place: int, contract: Contract) -> Kept:
        try:
            self._decisions.check_served(contract)
        except BadInput as error:
            raise BadInput(f"contracts[{place}].{error.field}", error.value, error.rule) from None
        return _with_document(contract, 0)

    def _keep(self, made: Collection[Kept]) -> None:
        """Write contracts to the file before they are in force. Raises BadInput, Unavailable."""
        after = self._after(made)
        if made:
            self._save(after, self._version + 1)
            self._kept, self._version = after, self._version + 1

    async def _keep_apart(self, made: Collection[Kept]) -> None:
        """As ``_keep``, written by a thread: again, if somebody else has made a version meanwhile."""
        while True:
            version = self._version + 1
            after = self._after([replace(each, version=version) for each in made])
            written = None
            if self._file is not None:
                written = await trio.to_thread.run_sync(_write, self._file.with_suffix(".submitted"), after, version)
            if self._version + 1 == version:
                break
        if self._file is not None and written is not None:
            _replace(written, self._file)
        self._kept, self._version = after, version

    def _after(self, made: Collection[Kept]) -> dict[tuple[str, str], Kept]:
        """Raises BadInput."""
        after = self._kept | {versioned.contract.key: versioned for versioned in made}
        if len(after) > MOST_CONTRACTS:
            raise BadInput("contracts", len(after), f"must be at most {MOST_CONTRACTS} in all")
        return after

    def remove(self, namespace: str, pattern: str, expected: str | None = None) -> None:
        """Remove a contract and its subjects. Raises NotFound, Conflict, Unavailable."""
        key = namespace, pattern
        known = self._kept.get(key)
        if known is None:
            raise NotFound("contract", f"{namespace} {pattern}")
        check_tag(known, expected)
        after = {each: versioned for each, versioned in self._kept.items() if each != key}
        self._save(after, self._version + 1)
        if self._all.pop(key, None) is not None:
            self._decisions.remove(namespace, pattern)
        self._kept, self._version = after, self._version + 1
        self._namespaces = {name for name, _ in self._all}

    def knows(self, namespace: str) -> bool:
        """Whether a namespace has contracts."""
        return namespace in self._namespaces

    def _save(self, contracts: dict[tuple[str, str], Kept], version: int) -> None:
        """Replace the file, which is complete or not changed. Raises Unavailable."""
        if self._file is not None:
            _replace(_write(self._file.with_suffix(".new"), contracts, version), self._file)


def _write(fresh: Path, contracts: dict[tuple[str, str], Kept], version: int) -> Path:
    """Write contracts to a file on disk. Raises Unavailable."""
    saved = _Written(version, [(each.version, each.document) for each in contracts.values()])
    try:
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(saved))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Unavailable(f"{fresh}: the contracts cannot be kept ({error.strerror})") from error
    return fresh


def _replace(fresh: Path, file: Path) -> None:
    """Raises Unavailable."""
    try:
        fresh.replace(file)
    except OSError as error:
        raise Unavailable(f"{file}: the contracts cannot be kept ({error.strerror})") from error
