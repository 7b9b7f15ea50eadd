"""What contracts say of a request, in the words of the rate limit service."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from limiting.envoy.rate_limits import OK, OVER_LIMIT, RateLimitRequest, RateLimitResponse, Status
from srtm.contracts.envoy import rate_limit_of, subject_of
from srtm.contracts.verdict import Verdict
from srtm.limiting.headers import Family, headers, tightest
from srtm.limiting.problem import MEDIA_TYPE, quota_exceeded


def costs_of(request: RateLimitRequest) -> list[tuple[str, int]]:
    """Return subject and cost of each descriptor, in order. An addend of the descriptor's own may be 0."""
    usual = request.hits or 1
    return [(subject_of(each.entries), usual if each.hits is None else each.hits) for each in request.descriptors]


def response_of(
    request: RateLimitRequest, verdicts: Mapping[str, Verdict], decisive: Verdict | None, families: Collection[Family]
) -> RateLimitResponse:
    """Return the answer. ``verdicts``: by subject; ``decisive``: the one that counts, None where nothing is limited."""
    statuses = tuple(_status(verdicts.get(subject_of(each.entries))) for each in request.descriptors)
    if decisive is None:
        return RateLimitResponse(statuses)
    found = headers(decisive, families)
    if decisive.allowed:
        return RateLimitResponse(statuses, found)
    return RateLimitResponse(statuses, [*found, ("Content-Type", MEDIA_TYPE)], quota_exceeded(decisive))


def _status(verdict: Verdict | None) -> Status:
    if verdict is None:
        return Status()
    policy, said = tightest(verdict)
    reset = said.reset_ns if said.allowed else said.wait_ns
    code = OK if verdict.allowed else OVER_LIMIT
    return Status(code, rate_limit_of(policy), policy.name, said.remaining, reset or 0)
