"""MQTT's sessions and retained messages by HTTP: listed, ended, cleared; refusals change nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from srtm.net.tokens import Tokens
from tests.support.broker_admin import Admin

SESSION: dict[str, Any] = {
    "client_id": "a/b c",
    "connected": True,
    "address": "127.0.0.1:5",
    "version": "5.0",
    "subscriptions": 1,
    "filters": ["x/#"],
    "queued": 2,
    "in_flight": 3,
    "unreleased": 0,
    "dropped": 4,
    "has_will": False,
    "expiry_s": 60,
    "ends_in_s": None,
}


async def test_sessions_are_listed_shown_and_ended_whatever_their_names(admin: Admin) -> None:
    admin.engine.mqtt["a/b c"] = SESSION
    status, listed = await admin.json("GET", "/v1/mqtt/sessions")
    assert (status, listed["total"], listed["sessions"][0]["queued"]) == (200, 1, 2)
    assert (await admin.json("GET", "/v1/mqtt/session?client=a%2Fb%20c"))[1] == SESSION
    assert (await admin.ask("DELETE", "/v1/mqtt/session?client=a%2Fb%20c")).status == 204
    assert (await admin.json("GET", "/v1/mqtt/sessions"))[1]["sessions"] == []


async def test_what_is_retained_is_listed_by_filter_and_cleared(admin: Admin) -> None:
    for method, clear in (("GET", False), ("DELETE", True)):
        response = await admin.ask(method, "/v1/mqtt/retained?filter=a%2F%23")
        assert json.loads(response.body)[0]["name"] == "a/b"
        assert admin.engine.calls[-1] == ("mqtt_retained", "a/#", clear)


async def test_what_was_lost_is_told_by_topic(admin: Admin) -> None:
    assert await admin.json("GET", "/v1/mqtt/losses") == (200, {})
    admin.engine.create_topic("heat").untaken = {"mqtt_refused": [0, 7, 2]}
    assert (await admin.json("GET", "/v1/mqtt/losses"))[1] == {
        "heat": {"refused": [0, 7, 2], "dropped": [], "full": {}}
    }


@pytest.mark.parametrize(
    ("method", "target", "status", "field"),
    [
        ("GET", "/v1/mqtt/session", 400, "client"),
        ("GET", "/v1/mqtt/session?client=none", 404, "client"),
        ("DELETE", "/v1/mqtt/session?client=none", 404, "client"),
        ("GET", "/v1/mqtt/sessions?most=0", 400, "most"),
        ("GET", "/v1/mqtt/sessions?most=x", 400, "most"),
        ("DELETE", "/v1/mqtt/retained?filter=a%2F%23%2Fb", 400, "filter"),
    ],
)
async def test_a_refusal_names_the_field(admin: Admin, method: str, target: str, status: int, field: str) -> None:
    assert (await admin.json(method, target))[0] == status
    assert (await admin.json(method, target))[1]["field"] == field
    assert not any(call[0] == "mqtt_retained" for call in admin.engine.calls)


async def test_they_are_for_operators_where_tokens_are_required() -> None:
    admin = Admin(tokens=Tokens.of_one("s3cret"))
    for method, target in (
        ("GET", "/v1/mqtt/losses"),
        ("GET", "/v1/mqtt/sessions"),
        ("DELETE", "/v1/mqtt/session?client=a"),
    ):
        assert (await admin.ask(method, target)).status == 401
