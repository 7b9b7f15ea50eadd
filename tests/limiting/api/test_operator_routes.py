"""Contracts, subjects and figures over HTTP, and which token may use what."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.nodes.decisions import NodeState
from srtm.contracts.contract import Contract, read_contract
from srtm.errors import BadInput
from srtm.net.tokens import Tokens

POLICY = {"name": "burst", "rate": 5, "burst": 7}
PATH = "/limit/v1/contracts/api/user:*"
OTHER = "/limit/v1/contracts/api/other:*"


async def test_a_contract_is_put_read_changed_and_removed(client: httpx.AsyncClient) -> None:
    put = await client.put(PATH, json={"policies": [POLICY]})
    assert (put.status_code, put.json()["policies"][0]["burst"]) == (200, 7)
    read = await client.get(PATH)
    assert read.headers["ETag"] == put.headers["ETag"]
    check = {"namespace": "api", "subject": "user:1"}
    await client.post("/limit/v1/check", json=check)
    assert (await client.get(PATH)).json()["counts"] == [{"name": "burst", "allowed": 1, "refused": 0, "cost": 1}]
    change = {"policies": [{**POLICY, "burst": 3}]}
    assert (await client.put(PATH, json=change, headers={"If-Match": put.headers["ETag"]})).status_code == 200
    late = await client.put(PATH, json=change, headers={"If-Match": put.headers["ETag"]})
    assert (late.status_code, late.json()["field"]) == (409, "If-Match")
    new = {"If-None-Match": "*"}
    there = await client.put(PATH, json=change, headers=new)
    assert (there.status_code, there.json()["field"]) == (409, "If-None-Match")
    assert (await client.put(OTHER, json=change, headers=new)).status_code == 200
    assert (await client.delete(OTHER)).status_code == 204
    assert (await client.delete(PATH)).status_code == 204
    assert (await client.get(PATH)).status_code == 404


async def test_contracts_are_submitted_all_or_none(client: httpx.AsyncClient) -> None:
    good = {"namespace": "api", "subject": "user:*", "policies": [POLICY]}
    bad = {"namespace": "api", "subject": "x", "policies": [{**POLICY, "burst": 0}]}
    refused = await client.post("/limit/v1/contracts", json={"contracts": [good, bad]})
    assert (refused.status_code, refused.json()["field"]) == (400, "contracts[1].policies[0].burst")
    assert len((await client.get("/limit/v1/contracts")).json()) == 2
    assert (await client.post("/limit/v1/contracts", json={"contracts": [good]})).json()[0]["subject"] == "user:*"
    assert len((await client.get("/limit/v1/contracts")).json()) == 3


@pytest.mark.parametrize("path", ["/limit/v1/contracts", "/limit/v1/usage", "/metrics"])
async def test_contracts_may_go_while_all_are_looked_at(client: httpx.AsyncClient, parts: Parts, path: str) -> None:
    names = [f"of {number:03}" for number in range(400)]
    parts.contracts.put_all(read_contract({"namespace": "x", "subject": name, "policies": [POLICY]}) for name in names)
    answers: list[httpx.Response] = []

    async def look() -> None:
        answers.append(await client.get(path))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        while names and not answers:
            await trio.lowlevel.checkpoint()
            await parts.contracts.remove("x", names.pop())
    assert names, "they went while it looked"
    assert answers[0].status_code == 200


async def test_a_path_and_its_document_name_the_same_contract(client: httpx.AsyncClient) -> None:
    answer = await client.put(PATH, json={"subject": "other", "policies": [POLICY]})
    assert (answer.status_code, answer.json()["field"]) == (400, "subject")


async def test_a_subject_is_shown_banned_and_pardoned(client: httpx.AsyncClient) -> None:
    path = "/limit/v1/subjects/api/user%2F1"
    assert (await client.get(path)).json()["policies"][0]["remaining"] == 2
    banned = (await client.put(path)).json()
    assert (banned["subject"], banned["allowed"], banned["wait_s"]) == ("user/1", False, 3)
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).json()["allowed"]
    assert (await client.get("/limit/v1/subjects/none/x")).status_code == 404
    unknown = await client.get("/limit/v1/subjects/none")
    assert (unknown.status_code, unknown.json()["rule"]) == (404, "a contract must have it")


async def test_what_happened_is_counted(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await client.post("/limit/v1/check", json={"namespace": "api", "subject": "a"})
    usage = {row["namespace"]: row for row in (await client.get("/limit/v1/usage")).json()}
    assert usage["api"] == {"namespace": "api", "subjects": 1, "allowed": 2, "refused": 1}
    text = (await client.get("/metrics")).text
    assert 'srtm_limit_allowed_total{contract="*",namespace="api",policy="burst"} 2.0' in text
    assert 'srtm_limit_refused_total{contract="*",namespace="api",policy="burst"} 1.0' in text
    for _ in range(200):
        await client.post("/limit/v1/check", json={"namespace": "api", "subject": "heavy"})
    found = (await client.get("/limit/v1/subjects/api?most=1")).json()
    assert (found["in_memory"], found["heaviest"][0]["subject"]) == (2, "heavy")


async def test_contracts_have_series_up_to_the_setting_the_busiest(parts: Parts) -> None:
    few = Parts(parts.decisions, parts.contracts, LimitConfig(metrics_contracts=1))
    transport = httpx.ASGITransport(app=make_app(few))
    async with httpx.AsyncClient(transport=transport, base_url="http://limit") as asking:
        for namespace in ("api", "jobs", "jobs"):
            await asking.post("/limit/v1/check", json={"namespace": namespace, "subject": "a"})
        text = (await asking.get("/metrics")).text
    assert 'srtm_limit_allowed_total{contract="*",namespace="jobs",policy="open"} 2.0' in text
    assert 'srtm_limit_allowed_total{contract="*",namespace="api"' not in text
    assert 'srtm_metrics_left_out{kind="contract"} 1.0' in text
    with pytest.raises(BadInput, match="metrics_contracts"):
        LimitConfig(metrics_contracts=-1)


@pytest.mark.parametrize(
    ("method", "path", "client_status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/metrics", 200),
        ("POST", "/limit/v1/check", 400),
        ("POST", "/limit/v1/correct", 400),
        ("GET", "/limit/v1/contracts", 403),
        ("PUT", PATH, 403),
        ("DELETE", PATH, 403),
        ("PUT", "/limit/v1/subjects/api/a", 403),
        ("GET", "/limit/v1/usage", 403),
        ("GET", "/limit/v1/audit", 403),
    ],
)
async def test_clients_may_ask_and_operators_may_do_all(
    parts: Parts, method: str, path: str, client_status: int
) -> None:
    tokens = Tokens.parsed("tokens", "operator o secret\nclient c weak\n")
    locked = Parts(parts.decisions, parts.contracts, LimitConfig(tokens=tokens))
    transport = httpx.ASGITransport(app=make_app(locked))
    statuses: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://limit") as asking:
        for token in ("none", "weak", "secret"):
            answer = await asking.request(method, path, headers={"Authorization": f"Bearer {token}"})
            statuses[token] = answer.status_code
    assert statuses["none"] == (200 if path == "/healthz" else 401)
    assert statuses["weak"] == client_status
    assert statuses["secret"] not in (401, 403)


async def test_a_contract_file_is_read_and_nothing_is_put_in_force(client: httpx.AsyncClient) -> None:
    text = '[[contracts]]\nnamespace = "api"\nsubject = "x"\npolicies = [{ name = "a", rate = 1, burst = 2 }]\n'
    read = await client.post("/limit/v1/contract-files", json={"text": text})
    assert [contract["subject"] for contract in read.json()["contracts"]] == ["x"]
    assert (await client.get("/limit/v1/contracts/api/x")).status_code == 404
    for bad, field in ((text.replace("burst = 2", "burst = 0"), "contracts[0].policies[0].burst"), ("x", "file")):
        refused = await client.post("/limit/v1/contract-files", json={"text": bad})
        assert (refused.status_code, refused.json()["field"]) == (400, field)


@pytest.mark.parametrize("text", ["a." * 4_000 + "a = 1", "a = " + "[" * 2_000, "contracts = [" + "9" * 5_000 + "]"])
async def test_a_file_that_its_parser_cannot_bear_is_refused(client: httpx.AsyncClient, text: str) -> None:
    refused = await client.post("/limit/v1/contract-files", json={"text": text})
    assert (refused.status_code, refused.json()["field"]) == (400, "file")


async def test_others_are_answered_while_a_file_is_read(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answered = trio.Event(), threading.Event()

    def slow(_text: str) -> list[Contract]:
        trio.from_thread.run_sync(begun.set)
        assert answered.wait(10)
        return []

    monkeypatch.setattr("limiting.api.contract_routes.read_contract_text", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(client.post, "/limit/v1/contract-files", json={"text": ""}))
        await begun.wait()
        assert (await client.get("/healthz")).status_code == 200
        answered.set()


async def test_another_sites_page_changes_nothing_and_a_cookie_is_as_good_as_a_token(parts: Parts) -> None:
    config = LimitConfig(tokens=Tokens.parsed("tokens", "operator ann o\nclient app c\n"))
    transport = httpx.ASGITransport(app=make_app(Parts(parts.decisions, parts.contracts, config)))
    async with httpx.AsyncClient(transport=transport, base_url="http://limit", cookies={"srtm_token": "o"}) as ann:
        assert (await ann.get("/limit/v1/contracts")).status_code == 200
        foreign = {"Sec-Fetch-Site": "cross-site"}
        assert (await ann.put(PATH, json={"policies": [POLICY]}, headers=foreign)).status_code == 403
        assert (await ann.put(PATH, json={"policies": [POLICY]})).status_code == 403
        own = {"Sec-Fetch-Site": "same-origin"}
        assert (await ann.put(PATH, json={"policies": [POLICY]}, headers=own)).status_code == 200
    async with httpx.AsyncClient(transport=transport, base_url="http://limit", cookies={"srtm_token": "c"}) as app:
        assert (await app.get("/limit/v1/contracts")).status_code == 403
        assert (await app.get("/")).status_code == 200
        assert (await app.get("/page/style.css")).status_code == 200


async def entries(asking: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    answer = await asking.get(f"/limit/v1/audit{query}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, list)
    return found


async def test_who_changed_a_contract_is_on_record_with_before_and_after(parts: Parts) -> None:
    locked = Parts(parts.decisions, parts.contracts, LimitConfig(tokens=Tokens.parsed("tokens", "operator ann o\n")))
    transport = httpx.ASGITransport(app=make_app(locked), client=("10.0.0.7", 5))
    header = {"Authorization": "Bearer o"}
    async with httpx.AsyncClient(transport=transport, base_url="http://limit", headers=header) as ann:
        contract = {"namespace": "api", "subject": "user:*", "policies": [POLICY]}
        other = {**contract, "subject": "x", "policies": [{**POLICY, "burst": 3}]}
        for _ in range(2):  # the second time nothing changes
            assert (await ann.post("/limit/v1/contracts", json={"contracts": [contract]})).status_code == 200
        changed = {**contract, "shadow": True}
        assert (await ann.post("/limit/v1/contracts", json={"contracts": [changed, other]})).status_code == 200
        assert (await ann.put(PATH, json=contract)).status_code == 200
        assert (await ann.put(PATH, json={"policies": []})).status_code == 400
        assert (await ann.delete(PATH)).status_code == 204
        found = await entries(ann)
        of_it = await entries(ann, "?subject=contract%20api%20user:*&most=2")
    assert [(one["number"], one["what"], one["subject"]) for one in found] == [
        (5, f"DELETE {PATH}", "contract api user:*"),
        (4, f"PUT {PATH}", "contract api user:*"),
        (3, "POST /limit/v1/contracts", "contract api x"),
        (2, "POST /limit/v1/contracts", "contract api user:*"),
        (1, "POST /limit/v1/contracts", "contract api user:*"),
    ]
    assert {(one["who"], one["source"]) for one in found} == {("ann", "10.0.0.7:5")}
    shadows = [tuple(one[key] and one[key]["shadow"] for key in ("before", "after")) for one in found]
    assert shadows == [(False, None), (True, False), (None, False), (False, True), (None, False)]
    assert [one["number"] for one in of_it] == [5, 4]


async def test_bans_and_resets_are_on_record_and_checks_are_not(client: httpx.AsyncClient) -> None:
    check = {"namespace": "api", "subject": "user/1"}
    assert (await client.post("/limit/v1/check", json=check)).status_code == 200
    for method in ("PUT", "DELETE"):
        assert (await client.request(method, "/limit/v1/subjects/api/user%2F1")).status_code < 300
    assert (await client.put("/limit/v1/subjects/none/x")).status_code == 404
    assert (await client.put("/limit/v1/watched/api/x")).status_code == 204
    found = [(one["who"], one["subject"], one["before"], one["after"]) for one in await entries(client)]
    assert found == [
        ("anybody", "subject api user/1", {"burst": 0}, {"burst": 2}),
        ("anybody", "subject api user/1", {"burst": 1}, {"burst": 0}),
    ]
    assert (await client.get("/limit/v1/audit?most=0")).status_code == 400


async def test_a_removed_node_is_on_record(
    client: httpx.AsyncClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: set[str] = set()
    monkeypatch.setattr(parts.decisions, "remove_node", removed.add)
    monkeypatch.setattr(parts.decisions, "states", lambda: [NodeState("c", "h:1", False, "c" in removed)])
    assert (await client.delete("/limit/v1/nodes/c")).status_code == 204
    (entry,) = await entries(client, "?subject=node%20c")
    assert (entry["before"]["removed"], entry["after"]["removed"]) == (False, True)
