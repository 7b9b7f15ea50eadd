"""What operators change of the contracts that brokers hold clients to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distributor.model.state_change import StateChange
from distributor.registry.state import ClusterState
from srtm.contracts.contract import Contract, check_for_brokers, contract_for
from srtm.contracts.versioned import Contracts, Versioned
from srtm.errors import BadInput, Conflict
from srtm.topics.contract_names import TENANTS
from srtm.topics.spec import TopicSpec

MOST_CONTRACTS = 10_000  # every broker is told all of them


class ContractRequests:
    """Puts contracts in force and removes them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    async def put(self, contracts: Iterable[Contract]) -> list[tuple[Contract | None, Contract]]:
        """Put several in force, all or none. Returns those that changed, before (None: not there) and after.

        Raises BadInput, Unavailable.
        """
        async with self._state.writing:
            before = self._state.contracts.in_force
            return [(before.get(each.key), each) for each in await self._put(contracts)]

    async def put_one(self, contract: Contract, expected: str | None) -> Versioned:
        """Put one in force. ``expected``: see ``Contracts.check_tag``. Raises BadInput, Conflict, Unavailable."""
        async with self._state.writing:
            self._state.contracts.check_tag(*contract.key, expected)
            await self._put([contract])
            return self._state.contracts.get(*contract.key)

    async def remove(self, namespace: str, pattern: str, expected: str | None) -> None:
        """Remove a contract. Raises NotFound, Conflict (also if a topic would name one that is not there)."""
        state = self._state
        async with state.placing, state.writing:  # under ``placing`` no topic is submitted meanwhile
            after = state.contracts.without(namespace, pattern, state.version + 1)
            state.contracts.check_tag(namespace, pattern, expected)
            for topic in state.managed():
                for field, name in missing(topic.spec, after):
                    rule = f"is the {field} of topic {topic.name!r}: submit that without it first"
                    raise Conflict("contract", name, rule)
            await state.commit(StateChange(contracts=after))

    async def _put(self, contracts: Iterable[Contract]) -> list[Contract]:
        state = self._state
        changed = state.contracts.news(contracts)
        for contract in changed:
            check_for_brokers(contract)
        if changed:
            await state.commit(StateChange(contracts=state.contracts.put(changed, state.version + 1, MOST_CONTRACTS)))
        return changed


def check_contracts(spec: TopicSpec, contracts: Contracts) -> None:
    """Check that the contracts that ``spec`` names are there. Raises BadInput."""
    for field, name in missing(spec, contracts):
        what = f"a subject of a contract of namespace {TENANTS!r}" if field == "contracts.tenant" else "a namespace"
        raise BadInput(
            field, name, f"must be {what} with a contract: srtm limit contract submit FILE --distributor URL"
        )


def missing(spec: TopicSpec, contracts: Contracts) -> Iterator[tuple[str, str]]:
    """Yield (field, name) of what ``spec`` names and has no contract."""
    named = [("contracts.publishers", spec.contracts.publishers), ("contracts.consumers", spec.contracts.consumers)]
    named += [("publishers.contract", name) for name in spec.publishers.contract_names]
    yield from ((field, name) for field, name in named if name and name not in contracts.namespaces)
    tenant = spec.contracts.tenant
    if tenant and contract_for(contracts.in_force, TENANTS, tenant) is None:
        yield "contracts.tenant", tenant
