"""``POST /v1/brokers/NAME/history`` and ``GET /v1/history``: histories of arrivals, from brokers and to the adaptor."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from distributor.api.bodies import read_message
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.control import HistoryReport
from srtm.errors import BadInput
from srtm.web.bodies import documented, json_answer


def add_history_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    config, histories = registry.config, syncing.histories

    @app.post("/v1/brokers/{name}/history", status_code=204, openapi_extra=documented("HistoryReport"))
    async def report_history(name: str, request: Request) -> Response:
        """For brokers: histories of their topics. A history that cannot be right is ignored and counted."""
        try:
            report = await read_message(request, config, HistoryReport)
        except BadInput:
            if name in registry.brokers:
                histories.ignored[name] += 1
            raise
        await syncing.take_history(name, report)
        return Response(status_code=204)

    @app.get("/v1/history")
    async def history(
        since: Annotated[int, Query(ge=0)] = 0,
        wait_s: Annotated[float, Query(ge=0.0, allow_inf_nan=False)] = 0.0,
        ignored: Annotated[int, Query(ge=0, le=2**53)] = 0,
    ) -> Response:
        """For the adaptor: topics with news after `since`; held back for up to `wait_s` while there is none.
        `ignored`: how many reports of earlier answers made no sense to the adaptor, for `/metrics`."""
        answer = await histories.answer(since, min(wait_s, config.longest_wait_s))
        histories.ignored_by_adaptors += ignored  # a standby counts none: its answer is a refusal
        return json_answer(answer)
