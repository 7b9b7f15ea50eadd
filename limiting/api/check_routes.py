"""Checks, corrections and releases: every request but the plain checks that ``limiting.http_server`` answers before.

A gateway asks with ``?status=429`` (Traefik, Caddy) or ``?status=403`` (nginx, whose ``auth_request`` knows no other):
then a refusal has that status, and the headers say when to come again.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from limiting.api.bodies import (
    MOST_CHECKS,
    CheckBody,
    CorrectBody,
    ManyBody,
    ReleaseBody,
    checked_json,
    grants_of,
    with_headers,
)
from limiting.api.parts import Parts
from limiting.checks import Checked
from limiting.envoy.rate_limits import OVER_LIMIT, JsonRequest, response_json
from limiting.envoy_checks import should_rate_limit
from srtm.errors import BadInput, SrtmError
from srtm.limiting.headers import headers
from srtm.limiting.limiter import checked_cost
from srtm.limiting.problem import MEDIA_TYPE, quota_exceeded
from srtm.web.bodies import documented, json_answer

_STATUSES = (403, 429)
_PLACE = re.compile(r"\{([A-Za-z0-9-]+)\}")
_Headers = Annotated[bool, Query(description="The answer has the headers for the client of the one who asks.")]
_Status = Annotated[int | None, Query(description="403 or 429: the status of a refusal, for gateways.")]


def add_check_routes(app: FastAPI, parts: Parts) -> None:
    """Add the routes that clients use."""
    decisions = parts.decisions

    @app.post("/limit/v1/check", openapi_extra=documented('`{"namespace", "subject" or "subjects", "cost", "peek"}`'))
    async def check_body(request: Request, status: _Status = None, headers: _Headers = False) -> Response:
        """Ask for `cost` tokens of a subject, or of several at once: all or none. 200 in any case, but see `status`."""
        body = await parts.body(request, CheckBody)
        checked = await decisions.check(body.namespace, body.names(), body.cost, peek=body.peek)
        if headers:
            return json_answer(with_headers(checked, parts.config.headers))
        return _answer(checked, status, parts)

    @app.get("/limit/v1/check")
    async def check_query(
        request: Request, namespace: str, subject: str, cost: int = 1, peek: bool = False, status: _Status = None
    ) -> Response:
        """The same for gateways. `subject` may name headers of the request: `ip:{x-forwarded-for}`."""
        name = filled(subject, request)
        return _answer(await decisions.check(namespace, [name], cost, peek=peek), status, parts)

    @app.post("/limit/v1/check-many", openapi_extra=documented('`{"checks": [...]}`, at most 1,000'))
    async def check_many(request: Request) -> Response:
        """Several checks, each for itself. What cannot be checked has an `error` in its place."""
        body = await parts.body(request, ManyBody)
        if len(body.checks) > MOST_CHECKS:
            raise BadInput("checks", len(body.checks), f"must be at most {MOST_CHECKS}")
        return json_answer({"results": [await _one_of_many(parts, each) for each in body.checks]})

    @app.post("/json", openapi_extra=documented("A RateLimitRequest of Envoy's rate limit service v3, as ProtoJSON."))
    async def json(request: Request) -> Response:
        """The answer to a RateLimitRequest, a RateLimitResponse: 429 if it is OVER_LIMIT."""
        asked = (await parts.body(request, JsonRequest)).request()
        said = await should_rate_limit(decisions, parts.contracts, asked, parts.config.headers)
        return json_answer(response_json(said), 429 if said.code == OVER_LIMIT else 200)

    @app.post("/limit/v1/correct", status_code=204, openapi_extra=documented('`{"grant", "cost"}`'))
    async def correct(request: Request) -> Response:
        """Replace the cost of a check by what it came to: once, within 60 s. A bucket may fall below zero."""
        body = await parts.body(request, CorrectBody)
        checked_cost(body.cost)
        for grant in grants_of(body.grant):
            await decisions.correct(grant, body.cost)
        return Response(status_code=204)

    @app.post("/limit/v1/release", status_code=204, openapi_extra=documented('`{"grant"}`'))
    async def release(request: Request) -> Response:
        """End an open request of policies of kind `concurrency`: once."""
        body = await parts.body(request, ReleaseBody)
        for grant in grants_of(body.grant):
            await decisions.release(grant)
        return Response(status_code=204)


def filled(template: str, request: Request) -> str:
    """A subject in which ``{header-name}`` stands for that header. Raises BadInput for one that is not there."""

    def value(match: re.Match[str]) -> str:
        found = request.headers.get(match[1])
        if found is None:
            raise BadInput("subject", template, f"the request has no header {match[1]}")
        return found

    return _PLACE.sub(value, template)


def _answer(checked: Checked, status: int | None, parts: Parts) -> Response:
    if status is None:
        return json_answer(checked_json(checked))
    if status not in _STATUSES:
        raise BadInput("status", status, "must be 403 or 429")
    verdict = checked.decisive
    found = dict(headers(verdict, parts.config.headers))
    if checked.allowed:
        return Response(status_code=200, headers=found)
    return Response(quota_exceeded(verdict, status), status, found, MEDIA_TYPE)


async def _one_of_many(parts: Parts, body: CheckBody) -> dict[str, object]:
    try:
        return checked_json(await parts.decisions.check(body.namespace, body.names(), body.cost, peek=body.peek))
    except SrtmError as error:
        return {"error": str(error), "status": error.http_status}
