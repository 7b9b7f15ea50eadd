"""Routes of fittings: the state of a topic's fitting, and the measurements of brokers."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Request, Response

from distributor.api.bodies import read_message
from distributor.fitting.task import ROUNDS_S, FittingOptions, parsed_options
from distributor.jobs.layout_jobs import LayoutJobs, stored_view
from distributor.registry.registry import Registry
from srtm.control import MeasurementReport
from srtm.errors import BadInput, NotLeader
from srtm.web.bodies import documented, json_answer


def add_fitting_routes(app: FastAPI, registry: Registry, layouts: LayoutJobs | None) -> None:
    """``layouts`` is None on a standby, which has only stored outcomes."""

    @app.get("/v1/topics/{name}/fitting")
    async def fitting(name: str) -> Response:
        """How a search for a layout goes on, or how the latest ended: what was measured, what is missing, and why."""
        topic = registry.topic(name)
        if layouts is None:
            return json_answer(stored_view(registry.fittings.get(name), topic))
        return json_answer(layouts.view(topic))

    @app.post("/v1/brokers/{name}/measurements/{id}", openapi_extra=documented("MeasurementReport"))
    async def measured(name: str, id_: Annotated[str, Path(alias="id")], request: Request) -> Response:
        """For brokers: what a measurement has found since the last report."""
        if layouts is None:
            raise NotLeader(registry.leader_url)
        report = await read_message(request, registry.config, MeasurementReport)
        return json_answer(await layouts.report(name, id_, report))


def requested_options(method: str | None, rounds_s: float | None) -> FittingOptions | None:
    """The fitting options in a request; None: there are none. Raises BadInput."""
    if method is None:
        if rounds_s is not None:
            raise BadInput("rounds_s", rounds_s, "goes with fitting=paper")
        return None
    if rounds_s is not None and method != "paper":
        raise BadInput("rounds_s", rounds_s, "goes with fitting=paper")
    return parsed_options(method, ROUNDS_S if rounds_s is None else rounds_s)
