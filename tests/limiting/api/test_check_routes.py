"""Checks over HTTP: what is allowed, what a gateway is told, what cannot be asked."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import read_contract
from srtm.contracts.subject_plans import Plans
from srtm.errors import BadInput
from srtm.limiting.limiter import Limiter

CHECK = "/limit/v1/check"
S = 10**9


async def check(client: httpx.AsyncClient, subject: str = "a", **others: Any) -> dict[str, Any]:
    answer = await client.post(CHECK, json={"namespace": "api", "subject": subject, **others})
    assert answer.status_code == 200
    return answer.json()


async def test_a_check_takes_and_a_peek_does_not(client: httpx.AsyncClient) -> None:
    assert (await check(client, peek=True))["grant"] is None
    first = await check(client)
    assert (first["allowed"], first["violated"], first["wait_s"]) == (True, [], 0)
    assert first["subjects"][0]["policies"][0]["remaining"] == 1
    assert (await check(client))["allowed"]
    refused = await check(client)
    assert (refused["allowed"], refused["violated"], refused["wait_s"], refused["grant"]) == (False, ["burst"], 1, None)
    policy = refused["subjects"][0]["policies"][0]
    assert (policy["policy_header"], policy["ratelimit_header"]) == ('"burst";q=2;w=2', '"burst";r=0;t=1')


async def test_several_subjects_are_charged_all_or_none(client: httpx.AsyncClient) -> None:
    await check(client, "a", cost=2)
    both = {"namespace": "api", "subjects": ["a", "b"]}
    assert not (await client.post(CHECK, json=both)).json()["allowed"]
    assert (await check(client, "b", peek=True))["subjects"][0]["policies"][0]["remaining"] == 2
    both["subjects"] = ["b", "c"]
    allowed = (await client.post(CHECK, json=both)).json()
    assert allowed["allowed"]
    assert (await client.post("/limit/v1/correct", json={"grant": allowed["grant"], "cost": 2})).status_code == 204
    for subject in ("b", "c"):
        assert (await check(client, subject, peek=True))["subjects"][0]["policies"][0]["remaining"] == 0


@pytest.mark.parametrize("status", [429, 403])
async def test_a_gateway_is_told_by_status_and_headers(client: httpx.AsyncClient, status: int) -> None:
    query = {"namespace": "api", "subject": "ip:{x-forwarded-for}", "status": status}
    answers = [await client.get(CHECK, params=query, headers={"X-Forwarded-For": "192.0.2.1"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, status]
    assert answers[0].headers["RateLimit"] == '"burst";r=1;t=1'
    assert answers[0].content == b""
    refused = answers[2]
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["violated-policies"] == ["burst"]
    other = await client.get(CHECK, params=query, headers={"X-Forwarded-For": "192.0.2.2"})
    assert other.status_code == 200


async def test_many_checks_stand_each_for_itself(client: httpx.AsyncClient) -> None:
    checks = [{"namespace": "api", "subject": "a", "cost": 2}] * 2 + [{"namespace": "none", "subject": "a"}]
    results = (await client.post("/limit/v1/check-many", json={"checks": checks})).json()["results"]
    assert [result.get("allowed") for result in results] == [True, False, None]
    assert results[2]["status"] == 404
    many = {"checks": checks[:1] * 1_001}
    assert (await client.post("/limit/v1/check-many", json=many)).status_code == 400


async def test_a_correction_counts_once_and_bans_for_what_was_too_much(client: httpx.AsyncClient, clock: Any) -> None:
    grant = (await check(client))["grant"]
    body = {"grant": grant, "cost": 3}
    assert (await client.post("/limit/v1/correct", json=body)).status_code == 204
    again = await client.post("/limit/v1/correct", json=body)
    assert (again.status_code, again.json()["rule"]) == (400, "was used before")
    assert (await check(client))["wait_s"] == 2
    clock.now = 2 * S
    assert (await check(client))["allowed"]


async def test_a_release_makes_room(client: httpx.AsyncClient) -> None:
    body = {"namespace": "jobs", "subject": "a"}
    grants = [(await client.post(CHECK, json=body)).json()["grant"] for _ in range(2)]
    assert not (await client.post(CHECK, json=body)).json()["allowed"]
    assert (await client.post("/limit/v1/release", json={"grant": grants[0]})).status_code == 204
    assert (await client.post("/limit/v1/release", json={"grant": grants[0]})).status_code == 400
    assert (await client.post(CHECK, json=body)).json()["allowed"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"namespace": "api"}, 400, "subjects"),
        ({"namespace": "api", "subjects": ["a"] * 17}, 400, "subjects"),
        ({"namespace": "api", "subjects": ["a", "a"]}, 400, "subjects"),
        ({"namespace": "api", "subject": ""}, 400, "subject"),
        ({"namespace": "api", "subject": "x" * (64 << 10)}, 400, "subject"),
        ({"namespace": "api", "subject": "a", "cost": -1}, 400, "cost"),
        ({"namespace": "api", "subject": "a", "cost": 2**32}, 400, "cost"),
        ({"namespace": "api", "subject": "a", "cost": 1.5}, 400, "cost"),
        ({"namespace": "api", "subject": "a", "price": 1}, 400, "body"),
        ({"subject": "a"}, 400, "namespace"),
        ({"namespace": "none", "subject": "a"}, 404, "subject"),
    ],
)
async def test_checks_that_cannot_be_are_refused(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, field: str
) -> None:
    answer = await client.post(CHECK, json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


async def test_a_body_is_bounded(parts: Parts) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": bytes(60_000), "more_body": True}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(BadInput, match="at most 100000 bytes"):
        await parts.body(request, dict)


@pytest.mark.parametrize("grant", ["", "AAAA", "!", "A" * 64, "é", "A" * 64 * 17])
async def test_forged_grants_are_refused(client: httpx.AsyncClient, grant: str) -> None:
    for path, body in (("correct", {"grant": grant, "cost": 1}), ("release", {"grant": grant})):
        answer = await client.post(f"/limit/v1/{path}", json=body)
        assert (answer.status_code, answer.json()["field"]) == (400, "grant")


async def test_a_gateway_that_asks_wrongly_is_told(client: httpx.AsyncClient) -> None:
    query: dict[str, Any] = {"namespace": "api", "subject": "{x-user}", "status": 429}
    assert (await client.get(CHECK, params=query)).json()["rule"] == "the request has no header x-user"
    wrong = await client.get(CHECK, params={**query, "subject": "a", "status": 500})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "status")


async def test_a_subjects_plan_decides_its_contract(clock: Any) -> None:
    plans = Plans({("api", "user:1"): "gold", ("api", "*"): "free"})
    decisions = Decisions(Limiter(clocks=clock), plans=plans)
    store = ContractStore(decisions)
    for plan, burst in (("gold", 3), ("free", 1)):
        policies = [{"name": "burst", "rate": 1, "burst": burst}]
        store.put_all([read_contract({"namespace": "api", "subject": f"{plan}/user:*", "policies": policies})])
    app = make_app(Parts(decisions, store, LimitConfig()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://limit") as asking:
        for subject, passes in (("user:1", 3), ("user:2", 1)):
            body = {"namespace": "api", "subject": f"{{plan}}/{subject}"}
            said = [(await asking.post(CHECK, json=body)).json()["allowed"] for _ in range(4)]
            assert sum(said) == passes
        shown = await asking.get("/limit/v1/subjects/api/{plan}/user:1")
        assert shown.json()["contract"] == "gold/user:*"
        body = {"namespace": "other", "subject": "{plan}/user:1"}
        answer = await asking.post(CHECK, json=body)
        assert (answer.status_code, answer.json()["field"]) == (404, "subject")
