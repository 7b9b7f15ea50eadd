"""Answers questions of Envoy's rate limit service by the contracts in force."""

from __future__ import annotations

from collections.abc import Collection

from limiting.contract_store import ContractStore
from limiting.envoy.rate_limits import RateLimitRequest, RateLimitResponse
from limiting.envoy.statuses import costs_of, response_of
from limiting.nodes.decisions import Decisions
from srtm.errors import NotFound
from srtm.limiting.headers import Family


async def should_rate_limit(
    decisions: Decisions, contracts: ContractStore, request: RateLimitRequest, families: Collection[Family]
) -> RateLimitResponse:
    """Charge all descriptors, or none. One without a contract is not limited, as at Envoy's own service.

    Raises BadInput, NotFound (no contract has the domain as its namespace), Unavailable.
    """
    if len(request.descriptors) == 1 and contracts.knows(request.domain):
        return await _of_one(decisions, request, families)
    costs: dict[str, int] = {}
    for subject, cost in costs_of(request):
        if decisions.is_limited(request.domain, subject):
            costs[subject] = costs.get(subject, 0) + cost
    if not costs:
        if not contracts.knows(request.domain):
            raise NotFound("domain", request.domain)
        return response_of(request, {}, None, families)
    checked = await decisions.check(request.domain, list(costs), list(costs.values()))
    return response_of(request, dict(checked.verdicts), checked.decisive, families)


async def _of_one(decisions: Decisions, request: RateLimitRequest, families: Collection[Family]) -> RateLimitResponse:
    """The same of one descriptor, as most have: its contract is looked for once."""
    ((subject, cost),) = costs_of(request)
    try:
        verdict = (await decisions.check(request.domain, [subject], cost)).decisive
    except NotFound:
        return response_of(request, {}, None, families)
    return response_of(request, {subject: verdict}, verdict, families)
