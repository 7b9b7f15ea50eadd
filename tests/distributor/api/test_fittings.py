"""The routes of fittings: bad options change nothing, reports of nobody's measurement are not wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest
import trio
import trio.testing

from distributor.api.app import make_app
from distributor.fitting import summary as fitting_view
from distributor.leadership.leader import leader_app
from distributor.model.cluster import FittingRecord
from distributor.sync.service import SyncService
from tests.support.distributor_in_process import Distributor, spec

REPORT = {"incarnation": "1", "sequence": 1}


@asynccontextmanager
async def leader(distributor: Distributor) -> AsyncIterator[httpx.AsyncClient]:
    app, tasks = leader_app(distributor.registry, "http://127.0.0.1:1")
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as client:
            yield client
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("query", "field"),
    [("fitting=quick", "fitting"), ("rounds_s=5", "rounds_s"), ("fitting=paper&rounds_s=0", "rounds_s")],
)
async def test_options_that_are_none_are_refused_and_nothing_is_stored(distributor, query, field):
    async with leader(distributor) as client:
        answer = await client.put(f"/v1/topics/cars?{query}", json=spec().to_json())
        assert (answer.status_code, answer.json()["field"]) == (400, field)
        assert (await client.get("/v1/topics")).json() == []


async def test_a_submission_is_answered_at_once_and_its_fitting_waits_for_messages(distributor):
    async with leader(distributor) as client:
        assert (await client.get("/v1/topics/cars/fitting")).status_code == 404
        await client.put("/v1/topics/cars?fitting=sequential", json=spec().to_json())  # as ``always`` was called
        found = (await client.get("/v1/topics/cars/fitting")).json()
        assert found["state"] in ("queued", "waiting")
        assert found["method"] == "always"
        again = await client.put("/v1/topics/cars?fitting=off", json=spec().to_json())
        assert again.status_code == 200
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.delete("/v1/topics/cars")).status_code == 204


async def test_a_report_of_a_measurement_that_nobody_wants_is_told_so(distributor):
    async with leader(distributor) as client:
        answer = await client.post("/v1/brokers/a/measurements/cars:1.1:1", json=REPORT)
        assert (answer.status_code, answer.json()["go_on"]) == (200, False)


async def test_a_standby_shows_what_is_stored_and_takes_no_report(distributor):
    await distributor.submit(spec())
    app = make_app(distributor.registry, SyncService(distributor.registry))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as client:
        assert (await client.get("/v1/topics/cars/fitting")).json()["state"] == "off"
        answer = await client.post("/v1/brokers/a/measurements/cars:1.1:1", json=REPORT)
        assert (answer.status_code, answer.json()["title"]) == (503, "standby")


async def test_the_same_submission_again_is_answered_with_what_was_measured(distributor):
    async with leader(distributor) as client:
        await client.put("/v1/topics/cars?fitting=off", json=spec().to_json())
        part = {"broker": "a", "messages": 9, "total_ms": 3.0, "access_ms": 1.0, "processing_ms": 2.0}
        measured = [{**part, "lab_service_time_ns": 0}]
        outcome = {**fitting_view.off(), "state": "fits", "measured": measured, "service_us": {"a": 17.5}}
        await distributor.registry.note_fitting(
            FittingRecord(
                topic="cars", running=False, method="off", rounds_s=60.0, outcome=msgspec.json.encode(outcome).decode()
            )
        )
        again = (await client.put("/v1/topics/cars", json=spec().to_json())).json()
    assert (again["fitting"]["measured"], again["fitting"]["service_us"]) == (measured, {"a": 17.5})
