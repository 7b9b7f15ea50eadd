"""Contracts of the limit service: listed, submitted, changed and removed while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import trio
from fastapi import FastAPI, Header, Request, Response

from limiting.api.bodies import ContractsBody, FileBody
from limiting.api.parts import Parts
from limiting.contract_store import PORTION, Kept
from srtm.concurrency.portions import in_portions
from srtm.contracts.contract import distinct, read_contract
from srtm.contracts.contract_file import read_contract_text
from srtm.contracts.versioned import expected_tag
from srtm.errors import BadInput
from srtm.web.bodies import decoded, documented, json_answer

_Match = Annotated[str | None, Header(description="The contract's ETag: 409 if it was changed since.")]
_NoneMatch = Annotated[str | None, Header(description="`*`: 409 if there is one already.")]


def add_contract_routes(app: FastAPI, parts: Parts) -> None:
    """Add the routes of operators."""
    store = parts.contracts
    reading = trio.CapacityLimiter(1)  # of files: their parser takes much memory, and time from the decisions
    shape = documented("A contract: the shape of `[[contracts]]` in a contract file.")

    @app.get("/limit/v1/contracts")
    async def list_contracts() -> Response:
        """All contracts with what was asked of their policies, by namespace and pattern."""
        return await _listed(store.all(), parts)

    @app.post("/limit/v1/contracts", openapi_extra=documented('`{"contracts": [...]}`: a contract file as JSON.'))
    async def submit(request: Request) -> Response:
        """Put several contracts in force, all or none. Others stay."""
        body = await parts.body(request, ContractsBody)
        read = (read_contract(decoded(bytes(raw), object), f"contracts[{n}]") for n, raw in enumerate(body.contracts))
        contracts = await in_portions(distinct(read), PORTION)
        return await _listed(await store.submit(contracts), parts)

    @app.post("/limit/v1/contract-files", openapi_extra=documented('`{"text"}`: a contract file in TOML.'))
    async def read_file(request: Request) -> Response:
        """The contracts of a contract file as the other routes take them. Nothing is put in force."""
        body = await parts.body(request, FileBody)
        return json_answer({"contracts": await trio.to_thread.run_sync(_documents, body.text, limiter=reading)})

    @app.get("/limit/v1/contracts/{namespace}/{pattern:path}")
    async def show_contract(namespace: str, pattern: str) -> Response:
        """The contract of exactly this pattern."""
        return _answer(store.get(namespace, pattern), parts)

    @app.put("/limit/v1/contracts/{namespace}/{pattern:path}", openapi_extra=shape)
    async def put_contract(
        namespace: str, pattern: str, request: Request, if_match: _Match = None, if_none_match: _NoneMatch = None
    ) -> Response:
        """Put a contract in force. It holds at once; what subjects have used stays."""
        document = await parts.body(request, dict[str, Any])
        contract = read_contract({"namespace": namespace, "subject": pattern, **document})
        if contract.key != (namespace, pattern):
            raise BadInput("subject", contract.subject, f"must be that of the path, {namespace!r} and {pattern!r}")
        return _answer(await store.put(contract, expected_tag(if_match, if_none_match)), parts)

    @app.delete("/limit/v1/contracts/{namespace}/{pattern:path}", status_code=204)
    async def remove_contract(namespace: str, pattern: str, if_match: _Match = None) -> Response:
        """Remove a contract and its subjects."""
        await store.remove(namespace, pattern, if_match)
        return Response(status_code=204)


def _documents(text: str) -> list[dict[str, Any]]:
    return [contract.to_json() for contract in read_contract_text(text)]


async def _listed(contracts: Iterable[Kept], parts: Parts) -> Response:
    present = parts.contracts.present(contracts)
    views = (msgspec.Raw(msgspec.json.encode(_view(each, parts))) for each in present)
    return json_answer(await in_portions(views, PORTION))


def _answer(versioned: Kept, parts: Parts) -> Response:
    return json_answer(_view(versioned, parts), headers={"ETag": versioned.etag})


def _view(versioned: Kept, parts: Parts) -> dict[str, Any]:
    counts = parts.decisions.counts(versioned.contract)
    return {
        **versioned.contract.to_json(),
        "version": versioned.version,
        "counts": [count._asdict() for count in counts],
    }
