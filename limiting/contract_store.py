"""The contracts of the service: in force in its decisions, with a version each, and kept on disk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec
import trio

from limiting.database import Database, Row
from limiting.nodes.decisions import Decisions
from srtm.concurrency.portions import in_portions
from srtm.contracts.contract import Contract, read_contracts
from srtm.contracts.versioned import Versioned, check_tag
from srtm.errors import BadInput, NotFound
from srtm.web.auditing import note_change
from srtm.web.bodies import decoded

MOST_CONTRACTS = 100_000
PORTION = 4  # contracts between two turns of other tasks: 0.2 ms, as a check takes several turns
NOTED_PORTION = 200  # the same where nothing is worked out


class Kept(Versioned, frozen=True, gc=False):
    """A contract with itself as JSON."""

    document: msgspec.Raw


def _with_document(contract: Contract, version: int) -> Kept:
    return Kept(contract, version, msgspec.Raw(msgspec.json.encode(contract.to_json())))


def _named(namespace: str, pattern: str) -> str:
    return f"contract {namespace} {pattern}"


class ContractStore:
    """All contracts. ``database``: keeps them; None: they end with the process."""

    def __init__(self, decisions: Decisions, database: Database | None = None) -> None:
        self._decisions = decisions
        self._database = database
        self._all: dict[tuple[str, str], Kept] = {}
        self._namespaces: set[str] = set()
        self._kept: dict[tuple[str, str], Kept] = {}  # with those that are not in force yet
        self._version = 0
        self._changing = trio.Lock()
        if self._database is not None:
            self._load(self._database)

    def _load(self, database: Database) -> None:
        self._version, rows = database.load()
        contracts = read_contracts([decoded(row.document, object) for row in rows])
        for contract, row in zip(contracts, rows, strict=True):
            self._enforce(_with_document(contract, row.version))
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

    async def put(self, contract: Contract, expected: str | None = None) -> Kept:
        """Put a contract in force and keep it. The same one again changes nothing.

        ``expected``: the entity tag that the present one must have; ``*``: any. Raises BadInput, Conflict, Unavailable.
        """
        async with self._changing:
            known = self._kept.get(contract.key)
            check_tag(known, expected)
            if known is None or known.contract != contract:
                self._decisions.check_served(contract)
                known = _with_document(contract, self._version + 1)
                await self._keep([known])
            if self._all.get(contract.key) is not known:  # a submission has not come to it yet
                self._enforce(known)
        return known

    def put_all(self, contracts: Iterable[Contract]) -> None:
        """Put several in force and keep them, before the service answers: all, or none if one cannot be.

        Raises BadInput, Unavailable.
        """
        version = self._version + 1
        served = [self._served(place, each, version) for place, each in enumerate(contracts) if self._changes(each)]
        made = {each.contract.key: each for each in served}
        self._check_room(made.values())
        if made and self._database is not None:
            self._database.put(_rows(made.values()), version)
        for versioned in made.values():
            self._note_one(versioned)
            self._enforce(versioned)
        self._version += bool(made)

    async def submit(self, contracts: Iterable[Contract]) -> list[Kept]:
        """As ``put_all``, of many, while the service answers: other tasks get their turns. A later change stays.

        Returns the contracts as they are kept. Raises BadInput, Unavailable.
        """
        wanted = list(contracts)
        async with self._changing:
            numbered, version = enumerate(wanted), self._version + 1
            changed = (self._served(place, each, version) for place, each in numbered if self._changes(each))
            made = await in_portions(changed, PORTION)
            if made:
                await self._keep(made)
        return await in_portions(self._enforced(wanted), PORTION)

    def _enforced(self, contracts: Iterable[Contract]) -> Iterator[Kept]:
        """Contracts as they are kept when each is asked for, in force from then on; without those that are gone."""
        for contract in contracts:
            versioned = self._kept.get(contract.key)
            if versioned is None:
                continue
            if self._all.get(contract.key) is not versioned:
                self._enforce(versioned)
            yield versioned

    def _changes(self, contract: Contract) -> bool:
        known = self._kept.get(contract.key)
        return known is None or known.contract != contract

    def _served(self, place: int, contract: Contract, version: int) -> Kept:
        try:
            self._decisions.check_served(contract)
        except BadInput as error:
            raise BadInput(f"contracts[{place}].{error.field}", error.value, error.rule) from None
        return _with_document(contract, version)

    async def _keep(self, made: Collection[Kept]) -> None:
        """Write contracts before they are in force; a thread waits for the disk. Raises BadInput, Unavailable."""
        self._check_room(made)
        if self._database is not None:
            await trio.to_thread.run_sync(self._database.put, _rows(made), self._version + 1)
        with trio.CancelScope(shield=True):  # they are on disk
            await in_portions(map(self._note_one, made), NOTED_PORTION)
        self._version += bool(made)

    def _check_room(self, made: Collection[Kept]) -> None:
        """Raises BadInput."""
        if len(self._kept) + len(made) <= MOST_CONTRACTS:
            return
        after = len(self._kept) + sum(each.contract.key not in self._kept for each in made)
        if after > MOST_CONTRACTS:
            raise BadInput("contracts", after, f"must be at most {MOST_CONTRACTS} in all")

    def _note_one(self, made: Kept) -> None:
        key = made.contract.key
        before = self._kept.get(key)
        note_change(_named(*key), None if before is None else before.document, made.document)
        self._kept[key] = made

    async def remove(self, namespace: str, pattern: str, expected: str | None = None) -> None:
        """Remove a contract and its subjects. Raises NotFound, Conflict, Unavailable."""
        key = namespace, pattern
        async with self._changing:
            known = self._kept.get(key)
            if known is None:
                raise NotFound("contract", f"{namespace} {pattern}")
            check_tag(known, expected)
            if self._database is not None:
                await trio.to_thread.run_sync(self._database.remove, namespace, pattern, self._version + 1)
            del self._kept[key]
            note_change(_named(*key), known.document, None)
            self._version += 1
            if self._all.pop(key, None) is not None:
                self._decisions.remove(namespace, pattern)
            self._namespaces = {name for name, _ in self._all}

    def knows(self, namespace: str) -> bool:
        """Whether a namespace has contracts."""
        return namespace in self._namespaces


def _rows(made: Iterable[Kept]) -> Iterator[Row]:
    return (Row(*each.contract.key, each.version, bytes(each.document)) for each in made)
