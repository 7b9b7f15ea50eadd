"""The OpenAPI document of a broker: all of its own routes and no others, and what they answer."""

from __future__ import annotations

import json
from array import array

import msgspec
import pytest

from broker.admin import openapi
from srtm import control
from srtm.net.http_server import Router
from tests.support.broker_admin import Admin

OURS = ("/v1/", "/metrics", "/healthz")


@pytest.fixture
def routes(monkeypatch):
    """Every route that the broker has."""
    found, add = set(), Router.add

    def noted(self, method, pattern, handler, **more):
        found.add((method, pattern))
        add(self, method, pattern, handler, **more)

    monkeypatch.setattr(Router, "add", noted)
    Admin()
    return found


async def test_it_names_all_routes_of_our_own_and_no_others(routes, admin):
    status, document = await admin.json("GET", "/openapi.json")
    named = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert status == 200
    assert named == {(method, path) for method, path in routes if path.startswith(OURS)}


async def test_every_reference_is_to_a_schema_that_is_there(admin):
    text = (await admin.ask("GET", "/openapi.json")).body.decode()
    schemas = json.loads(text)["components"]["schemas"]
    refers = {part.split('"', 1)[0] for part in text.split("#/components/schemas/")[1:]}
    assert {"Trace", "Problem", "DrainProgress", "GdrlMessage"} <= refers <= schemas.keys()


async def test_a_trace_and_how_far_draining_has_got_are_as_it_says(admin, monkeypatch):
    columns = [["p"], array("I", [0]).tobytes(), *(array("q", [5]).tobytes() for _ in range(5))]
    monkeypatch.setattr(admin.engine, "trace", lambda _topic: columns, raising=False)
    answer = await admin.ask("GET", "/v1/topics/cars/trace")
    trace = msgspec.json.decode(answer.body, type=control.Trace)
    assert json.loads(answer.body).keys() == set(control.Trace.__struct_fields__)
    assert (trace.publishers, trace.arrival_ns) == (["p"], [5])
    msgspec.json.decode((await admin.ask("GET", "/v1/drain")).body, type=control.DrainProgress)
    msgspec.json.decode((await admin.ask("GET", "/healthz")).body, type=openapi.Health)


@pytest.mark.parametrize("operation", openapi.OPERATIONS)
async def test_what_is_answered_has_a_status_that_it_names(admin, operation):
    method, path = operation
    answer = await admin.ask(method, path.replace("{name}", "cars"))
    _, document = await admin.json("GET", "/openapi.json")
    assert str(answer.status) in document["paths"][path][method.lower()]["responses"]
