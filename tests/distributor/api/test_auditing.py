"""The audit log: which requests it has, who made them, and what it says was before and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from distributor.api.app import make_app
from distributor.storage import audit_log
from distributor.storage.audit_log import AuditLog
from distributor.storage.store import Store
from srtm.errors import Unavailable
from srtm.net.tokens import Tokens
from srtm.web import auditing
from srtm.web.audit_entry import AuditEntry
from tests.support.distributor_in_process import Distributor

TOPIC = {"name": "roads", "rate": 100.0, "burst": 5.0, "mode": "static", "slo": {"percentile": 99, "latency_ms": 5}}
TOKENS = "operator ann o\noperator ben p\nclient cars c\n"


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Distributor]:
    made = await Distributor.open(tmp_path / "s.sqlite3", tokens=Tokens.parsed("tokens", TOKENS))
    yield made
    await made.aclose()


def client(distributor: Distributor, token: str) -> httpx.AsyncClient:
    app = make_app(distributor.registry, distributor.syncing)
    transport = httpx.ASGITransport(app, client=("10.0.0.7", 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://d", headers={"Authorization": f"Bearer {token}"})


async def entries(http: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    answer = await http.get(f"/v1/audit{query}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, list)
    return found


async def test_a_change_of_a_contract_has_what_it_was_and_is(opened: Distributor) -> None:
    policies = [{"name": "burst", "rate": 10, "burst": 5}]
    document = {"namespace": "sensors", "subject": "road:*", "policies": policies}
    async with client(opened, "o") as ann:
        assert (await ann.post("/v1/contracts", json={"contracts": [document]})).status_code == 200
        for shadow in (True, True, False):
            answer = await ann.put("/v1/contracts/sensors/road:*", json={**document, "shadow": shadow})
            assert answer.status_code == 200
        assert (await ann.delete("/v1/contracts/sensors/road:*")).status_code == 204
        removed, _, changed, submitted = await entries(ann)
    assert (submitted["what"], submitted["subject"]) == ("POST /v1/contracts", "contract sensors road:*")
    assert (submitted["before"], submitted["after"]["policies"][0]["burst"]) == (None, 5)
    assert (changed["subject"], changed["before"]["shadow"], changed["after"]["shadow"]) == (
        "contract sensors road:*",
        False,
        True,
    )
    assert (removed["before"]["shadow"], removed["after"]) == (False, None)


async def test_contracts_that_come_together_have_an_entry_each_unless_they_are_the_same(
    opened: Distributor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def document(name: str, burst: int) -> dict[str, Any]:
        return {"namespace": "sensors", "subject": name, "policies": [{"name": "b", "rate": 10, "burst": burst}]}

    async with client(opened, "o") as ann:
        for bursts in ((1, 1, 1), (1, 2, 2), (1, 2, 2)):
            contracts = [document(name, burst) for name, burst in zip("abc", bursts, strict=True)]
            assert (await ann.post("/v1/contracts", json={"contracts": contracts})).status_code == 200
        c, b, *made = await entries(ann)
        assert [one["subject"] for one in made] == [f"contract sensors {name}" for name in "cba"]
        assert [(one["before"]["policies"][0]["burst"], one["after"]["policies"][0]["burst"]) for one in (b, c)] == [
            (1, 2),
            (1, 2),
        ]
        assert b["at"] == c["at"]
        monkeypatch.setattr(auditing, "MOST_LISTED", 2)
        contracts = [document(str(number), 1) for number in range(5)]
        assert (await ann.post("/v1/contracts", json={"contracts": contracts})).status_code == 200
        assert [one["subject"] for one in await entries(ann, "?limit=3")] == [
            "3 more",
            "contract sensors 1",
            "contract sensors 0",
        ]


async def test_a_change_of_publishers_says_which(opened: Distributor) -> None:
    async with client(opened, "o") as ann:
        await ann.post("/v1/topics", json={**TOPIC, "publishers": [{"ids": ["a", "b"], "rates": [1, 1]}]})
        change = {"add": [{"id": "c", "rate": 2, "correlation_group": "g"}], "remove": ["a"]}
        assert (await ann.patch("/v1/topics/roads/publishers", json=change)).status_code == 200
        other = [{"ids": ["b", "c"], "rates": [3, 2]}]
        assert (await ann.put("/v1/topics/roads", json={**TOPIC, "publishers": other})).status_code == 200
        assert (await ann.put("/v1/topics/roads", json={**TOPIC, "rate": 90.0, "publishers": other})).status_code == 200
        rated, put, patched, created = await entries(ann)
    assert (created["publishers"], rated["publishers"]) == (None, None)
    assert patched["publishers"] == {
        "added": 1,
        "removed": 1,
        "changed": 0,
        "first": [
            {"id": "a", "before": {"rate": 1.0}, "after": None},
            {"id": "c", "before": None, "after": {"rate": 2.0, "correlation_group": "g"}},
        ],
    }
    assert put["publishers"]["first"] == [
        {"id": "b", "before": {"rate": 1.0}, "after": {"rate": 3.0}},
        {"id": "c", "before": {"rate": 2.0, "correlation_group": "g"}, "after": {"rate": 2.0}},
    ]


async def test_every_change_is_there_with_who_what_from_where_before_and_after(opened: Distributor) -> None:
    async with client(opened, "o") as ann, client(opened, "p") as ben:
        assert (await ann.post("/v1/topics", json=TOPIC)).status_code == 201
        assert (await ben.put("/v1/topics/roads", json={**TOPIC, "rate": 200.0})).status_code == 200
        change = {"add": [{"id": "a", "rate": 1}], "remove": []}
        assert (await ann.patch("/v1/topics/roads/publishers", json=change)).status_code == 200
        assert (await ben.delete("/v1/topics/roads")).status_code == 204
        removed, added, changed, created = await entries(ann)
        assert [one["number"] for one in await entries(ann, "?limit=2")] == [4, 3]
        assert await entries(ann, "?topic=other") == []
        assert len(await entries(ann, "?topic=roads")) == 4
    assert (created["who"], created["what"], created["source"]) == ("ann", "POST /v1/topics", "10.0.0.7:50000")
    assert (created["subject"], created["before"], created["after"]["rate"]) == ("topic roads", None, 100.0)
    assert (changed["who"], changed["what"]) == ("ben", "PUT /v1/topics/roads")
    assert (changed["before"]["rate"], changed["after"]["rate"]) == (100.0, 200.0)
    assert (added["before"]["publishers"], added["after"]["publishers"]) == (0, 1)
    assert (removed["who"], removed["after"]) == ("ben", None)
    assert removed["at"] > created["at"] > 1e9


async def test_a_change_on_the_page_is_the_change_of_whoever_signed_in(opened: Distributor) -> None:
    async with client(opened, "p") as http:
        del http.headers["Authorization"]
        http.headers["Sec-Fetch-Site"] = "same-origin"
        assert (await http.post("/session", content="p")).status_code == 204
        assert (await http.post("/v1/topics", json=TOPIC)).status_code == 201
        (created,) = await entries(http)
    assert (created["who"], created["what"]) == ("ben", "POST /v1/topics")


async def test_what_is_refused_or_changes_nothing_is_not_there(opened: Distributor) -> None:
    async with client(opened, "o") as ann, client(opened, "c") as cars:
        assert (await ann.put("/v1/topics/roads", json=TOPIC)).status_code == 200
        assert (await ann.put("/v1/topics/roads", json=TOPIC)).status_code == 200
        assert (await ann.post("/v1/plan", json={**TOPIC, "name": "other"})).status_code == 200
        assert (await ann.put("/v1/topics/roads", json={**TOPIC, "rate": -1})).status_code == 400
        assert (await cars.delete("/v1/topics/roads")).status_code == 403
        assert (await ann.post("/v1/brokers/none/drain")).status_code == 404
        assert len(await entries(ann)) == 1
        assert (await cars.get("/v1/audit")).status_code == 403
        assert (await ann.get("/v1/audit?limit=0")).status_code == 400
        assert (await ann.get("/v1/audit?topic=a&broker=b")).status_code == 400


async def test_a_change_that_cannot_be_noted_is_in_the_log_of_the_service(
    opened: Distributor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(_log: AuditLog, _entries: list[AuditEntry]) -> None:
        raise Unavailable("store: away")

    monkeypatch.setattr(AuditLog, "note", fail)
    async with client(opened, "o") as ann:
        assert (await ann.put("/v1/topics/roads", json=TOPIC)).status_code == 200
    said = capsys.readouterr().err
    assert "a change is not in the audit log" in said
    assert "PUT /v1/topics/roads" in said


async def test_the_oldest_go_and_numbers_go_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "KEPT", 3)
    for _ in range(2):
        store = await Store.open(f"sqlite:///{tmp_path / 's.sqlite3'}")
        log = AuditLog(store, lambda: 10**18)
        for _ in range(2):
            await log.note([AuditEntry(who="ann", what="PUT /", source="", subject="")])
        latest = await log.latest(10)
        await store.aclose()
    assert [one.number for one in latest] == [4, 3, 2]
