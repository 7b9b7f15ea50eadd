"""``/v1/brokers/NAME/capacity``: what a broker can process, as measured (``srtm capacity bench``) or stated."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from distributor.api.bodies import read_document
from distributor.registry.registry import Registry
from distributor.views.broker_view import capacity_view
from srtm.topics.capacity import parse_capacity
from srtm.web.bodies import documented, json_answer


def add_capacity_routes(app: FastAPI, registry: Registry) -> None:
    shape = documented(
        "`mcap` (msg/s) and `slo`; `process`, `batch`, `publishers` of the traffic; how it was measured, if it was."
    )

    @app.get("/v1/brokers/{name}/capacity")
    async def show_capacity(name: str) -> Response:
        """A broker's capacity, as far as it is known, and what is left of it."""
        return json_answer(capacity_view(name, registry))

    @app.put("/v1/brokers/{name}/capacity", openapi_extra=shape)
    async def note_capacity(name: str, request: Request) -> Response:
        """State what a broker can process of one promise and traffic class; replaces an earlier statement."""
        document = await read_document(request, registry.config, object)
        await registry.set_capacity(name, parse_capacity(document))
        return json_answer(capacity_view(name, registry))

    @app.delete("/v1/brokers/{name}/capacity", status_code=204)
    async def forget_capacities(name: str) -> Response:
        """Forget all measured capacities: the one that the broker was started with counts."""
        await registry.forget_capacities(name)
        return Response(status_code=204)
