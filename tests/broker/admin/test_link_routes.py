"""Another broker says by HTTP what its MQTT subscribers want."""

from __future__ import annotations

import json
from typing import Any

import pytest

from srtm.net.tokens import Tokens
from tests.support.broker_admin import Admin

WANTED: dict[str, Any] = {"sender": "b2", "filters": ["rain/#"], "durable": False}


async def test_a_broker_is_told_where_what_it_wants_is_to_be_consumed(admin: Admin) -> None:
    status, answer = await admin.json("PUT", "/v1/links/b2", WANTED)
    assert status == 200
    assert (answer["tcp_address"], answer["channel"], answer["topics"]) == (
        "127.0.0.1:4150",
        "srtm.link.b2",
        ["default", "srtm.retained"],
    )
    assert "srtm.link.b2" in admin.engine.topics["default"].channels
    assert len(answer["key"]) == 32


@pytest.mark.parametrize(
    ("target", "body", "field"),
    [
        ("/v1/links/b2", b"[]", "body"),
        ("/v1/links/b2", json.dumps(WANTED | {"filters": [1]}).encode(), "body"),
        ("/v1/links/b2", json.dumps(WANTED | {"filters": ["#/x"]}).encode(), "filters"),
        ("/v1/links/b3", json.dumps(WANTED).encode(), "sender"),
        ("/v1/links/b1", json.dumps(WANTED | {"sender": "b1"}).encode(), "sender"),
        ("/v1/links/-", json.dumps(WANTED | {"sender": "-"}).encode(), "sender"),
    ],
)
async def test_a_refusal_names_what_is_wrong_and_makes_nothing(
    admin: Admin, target: str, body: bytes, field: str
) -> None:
    response = await admin.ask("PUT", target, body)
    assert response.status == 400
    assert field in json.loads(response.body)["detail"]
    assert not any("srtm.link.b2" in topic.channels for topic in admin.engine.topics.values())


async def test_where_tokens_are_asked_for_a_broker_speaks_for_itself_alone() -> None:
    admin = Admin(tokens=Tokens.of_one("secret"))
    body = json.dumps(WANTED).encode()
    assert (await admin.ask("PUT", "/v1/links/b2", body)).status == 401
    assert (await admin.ask("PUT", "/v1/links/b2", body, authorization="Bearer other")).status in (401, 403)
    assert (await admin.ask("PUT", "/v1/links/b2", body, authorization="Bearer secret")).status == 200
