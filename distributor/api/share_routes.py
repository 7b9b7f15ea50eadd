"""``PUT /v1/shares`` and ``PATCH /v1/topics/NAME``: change the split of running topics."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from distributor.api.bodies import read_document
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.views import topic_view as views
from srtm.control import ShareProposals
from srtm.topics.spec import parse_options
from srtm.web.bodies import documented, json_answer


def add_share_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    config = registry.config
    options = documented('`{"mode", "split", "adaptation": {...}}`; what is missing stays as it is.')

    @app.put("/v1/shares", openapi_extra=documented("ShareProposals"))
    async def propose_shares(request: Request) -> Response:
        """For an adaptor: other shares for many topics, each with the version that it rests on. A stale proposal is
        refused, the others are taken. The distributor's own split loop stands back for 10 s; an empty list renews
        that."""
        proposals = await read_document(request, config, ShareProposals)
        syncing.split_owner.claim()
        return json_answer(await registry.adapt(proposals.proposals))

    @app.patch("/v1/topics/{name}", openapi_extra=options)
    async def set_options(name: str, request: Request) -> Response:
        """Change a topic's mode, split or adaptation. Publishers stay where they are."""
        body = await read_document(request, config, object)
        topic = await registry.set_options(name, lambda spec: parse_options(spec, body))
        return json_answer(views.topic_view(topic, registry, syncing))
