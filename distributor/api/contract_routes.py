"""Contracts that brokers hold clients to: listed, submitted, changed and removed while they run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import trio
from fastapi import FastAPI, Header, Query, Request, Response

from distributor.api.bodies import ContractFile, ContractText, read_document
from distributor.api.budgets import budgets
from distributor.page.rows import MOST_ROWS
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.views.contract_view import ContractRows, contract_view, found
from srtm.concurrency.portions import in_portions
from srtm.contracts.contract import Contract, read_contract, read_contracts
from srtm.contracts.contract_file import read_contract_text
from srtm.contracts.versioned import Versioned, expected_tag
from srtm.errors import BadInput
from srtm.web.auditing import note_change
from srtm.web.bodies import documented, json_answer

_Match = Annotated[str | None, Header(description="The contract's ETag: 409 if it was changed since.")]
_NoneMatch = Annotated[str | None, Header(description="`*`: 409 if there is one already.")]

_NOTED_PORTION = 20  # changes between two turns of other tasks


def add_contract_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    config = registry.config
    shape = documented("A contract: the shape of `[[contracts]]` in a contract file.")

    def answer(namespace: str, pattern: str) -> Response:
        known = registry.contracts.get(namespace, pattern)
        return json_answer(contract_view(known, syncing), headers={"ETag": known.etag})

    async def listed(contracts: Iterable[Versioned]) -> Response:
        """Other tasks get their turn after each: its counts are those of a thousand brokers."""
        return json_answer(await in_portions((contract_view(each, syncing) for each in contracts), 1))

    @app.get("/v1/contracts")
    async def list_contracts() -> Response:
        """All contracts, and what brokers were asked of their policies, by namespace and pattern."""
        return await listed(registry.contracts.all())

    @app.post("/v1/contracts", openapi_extra=documented('`{"contracts": [...]}`: a contract file as JSON.'))
    async def submit_contracts(request: Request) -> Response:
        """Put several contracts in force, all or none. Others stay."""
        contracts = read_contracts((await read_document(request, config, ContractFile)).contracts)
        await in_portions(map(_noted, await registry.put_contracts(contracts)), _NOTED_PORTION)
        return await listed([registry.contracts.get(*each.key) for each in contracts])

    @app.get("/v1/overview/contracts")
    async def overview(
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
        search: str = "",
    ) -> Response:
        """One screen of the list of contracts, by namespace and pattern. `search`: a part of `NAMESPACE PATTERN`."""
        contracts = registry.contracts.all()
        those = found(contracts, search)
        rows = await in_portions((contract_view(each, syncing) for each in those[offset : offset + limit]), 1)
        return json_answer(ContractRows(total=len(those), all=len(contracts), counts={}, rows=rows))

    @app.post("/v1/contract-files", openapi_extra=documented('`{"text"}`: a contract file in TOML.'))
    async def read_file(request: Request) -> Response:
        """The contracts of a contract file as the other routes take them. Nothing is put in force."""
        given = await read_document(request, config, ContractText)
        contracts = await trio.to_thread.run_sync(read_contract_text, given.text, limiter=budgets(request).files)
        return json_answer({"contracts": [contract.to_json() for contract in contracts]})

    @app.get("/v1/contracts/{namespace}/{pattern:path}")
    async def show_contract(namespace: str, pattern: str) -> Response:
        """The contract of exactly this pattern."""
        return answer(namespace, pattern)

    @app.put("/v1/contracts/{namespace}/{pattern:path}", openapi_extra=shape)
    async def put_contract(
        namespace: str, pattern: str, request: Request, if_match: _Match = None, if_none_match: _NoneMatch = None
    ) -> Response:
        """Put a contract in force. Brokers have it within a second; what subjects have used stays."""
        document = await read_document(request, config, dict[str, Any])
        contract = read_contract({"namespace": namespace, "subject": pattern, **document})
        if contract.key != (namespace, pattern):
            raise BadInput("subject", contract.subject, f"must be that of the path, {namespace!r} and {pattern!r}")
        await registry.put_contract(contract, expected_tag(if_match, if_none_match))
        return answer(namespace, pattern)

    @app.delete("/v1/contracts/{namespace}/{pattern:path}", status_code=204)
    async def remove_contract(namespace: str, pattern: str, if_match: _Match = None) -> Response:
        """Remove a contract. 409 if a topic would name a namespace without contracts."""
        await registry.remove_contract(namespace, pattern, if_match)
        return Response(status_code=204)


def _noted(change: tuple[Contract | None, Contract]) -> Contract:
    """The contract as it is now; its change is in the audit log."""
    before, after = change
    namespace, pattern = after.key
    note_change(f"contract {namespace} {pattern}", None if before is None else before.to_json(), after.to_json())
    return after
