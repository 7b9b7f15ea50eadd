"""The distributor's HTTP interface: routes, each a few lines over ``registry``, ``sync`` and ``views``.

Refusals are problem+json; nsqlookupd's routes answer as nsqlookupd 1.3.0 does. The parsers of ``srtm`` read bodies, not
pydantic models of FastAPI: bodies are the same documents as topic files, and a million publishers must not be copied.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import trio
from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import StreamingResponse

from distributor.api.access import Access
from distributor.api.auditing import add_audit
from distributor.api.bodies import TopicFile, read_document, read_message
from distributor.api.budgets import add_budgets, budgets
from distributor.api.capacity import add_capacity_routes
from distributor.api.contract_routes import add_contract_routes
from distributor.api.fittings import add_fitting_routes, requested_options
from distributor.api.history import add_history_routes
from distributor.api.limit_node_routes import add_limit_node_routes
from distributor.api.lookup_routes import add_lookup_routes
from distributor.api.openapi import describe
from distributor.api.share_routes import add_share_routes
from distributor.config import DistributorConfig
from distributor.jobs import explain as explaining
from distributor.jobs.layout_jobs import LayoutJobs
from distributor.model.cluster import Topic
from distributor.page.contract_subjects import add_contract_subject_routes
from distributor.page.observer import Observer
from distributor.page.routes import add_page_routes
from distributor.registry.registry import Registry
from distributor.registry.topic_requests import not_fitted
from distributor.sync.service import SyncService
from distributor.views import topic_view as views
from distributor.views.broker_view import broker_view, health_view
from distributor.views.metrics import exposition
from distributor.views.topic_why import topic_why
from srtm.concurrency.portions import in_portions
from srtm.control import DeadNotice, SyncRequest
from srtm.errors import BadInput
from srtm.topics.file import read_topic_text
from srtm.topics.publisher_blocks import declared_publishers
from srtm.topics.spec import TopicSpec, parse_change, parse_topic_json
from srtm.version import __version__
from srtm.web.bodies import documented, json_answer
from srtm.web.browser import OtherSites
from srtm.web.refusals import Admit, CheckedFirst, add_refusals, refuse_two_lengths


def make_app(
    registry: Registry,
    syncing: SyncService,
    admit: Admit | None = None,
    layouts: LayoutJobs | None = None,
    observer: Observer | None = None,
) -> FastAPI:
    """The ASGI application.

    ``admit`` raises an SrtmError for requests that must not be served. ``layouts`` and ``observer`` are None on a
    standby.
    """
    app = FastAPIOffline(title="SRTM distributor", version=__version__, redoc_url=None)
    for add_routes in (
        add_share_routes,
        add_contract_routes,
        add_contract_subject_routes,
        _broker_routes,
        add_history_routes,
        add_lookup_routes,
        _service_routes,
    ):
        add_routes(app, registry, syncing)
    for add_routes_of_topics in (_topic_routes, _publisher_routes):
        add_routes_of_topics(app, registry, syncing, layouts)
    add_limit_node_routes(app)
    add_capacity_routes(app, registry)
    add_fitting_routes(app, registry, layouts)
    add_page_routes(app, registry, observer)
    add_budgets(app, registry.config)
    add_refusals(app)
    add_audit(app, registry)
    describe(app)
    if admit is not None:
        app.add_middleware(CheckedFirst, admit=admit)
    if registry.config.tokens is not None:  # added later: runs earlier
        app.add_middleware(CheckedFirst, admit=Access(registry.config.tokens, app.routes).check)
    config = registry.config
    sites = OtherSites(config.tokens, config.http_address, config.broadcast_address)
    app.add_middleware(CheckedFirst, admit=sites.refuse)
    app.add_middleware(CheckedFirst, admit=refuse_two_lengths, closes=True)
    return app


# Topics


def _topic_routes(app: FastAPI, registry: Registry, syncing: SyncService, layouts: LayoutJobs | None) -> None:
    config = registry.config
    shape = documented("A topic: the shape of a topic file, lists inlined as `csv_text` or given as columns.")

    @app.post("/v1/topics", status_code=201, openapi_extra=shape)
    async def create_topic(
        request: Request,
        fitting: str | None = None,
        rounds_s: float | None = None,
        confidence: float | None = None,
    ) -> Response:
        """Create a topic; 409 if one of this name exists. `fitting` overrides the distributor's method. `confidence`:
        per cent of the minutes that are to keep the promise; the explanation has a prediction then."""
        explaining.check_confidence(confidence)
        options = requested_options(fitting, rounds_s)
        fitted = layouts.intended(options) if layouts is not None else not_fitted
        async with _spec(request, config) as spec:
            services = explaining.service_ns(spec.name, registry, syncing)
            topic = await registry.submit(spec, create_only=True, fitting=fitted, services=services)
            request.state.created_topic = topic.name
            if layouts is not None:
                await layouts.submitted(topic, None, options)
            return json_answer(await _explained(topic, registry, syncing, layouts, confidence), 201)

    @app.put("/v1/topics/{name}", openapi_extra=shape)
    async def create_or_change_topic(
        name: str,
        request: Request,
        fitting: str | None = None,
        rounds_s: float | None = None,
        confidence: float | None = None,
    ) -> Response:
        """Create or change a topic. The same document again changes nothing but a burst `auto` that is too small by
        now; it is fitted anew if it names `fitting`. `confidence`: per cent of the minutes that are to keep the
        promise; the explanation has a prediction then."""
        explaining.check_confidence(confidence)
        options, before = requested_options(fitting, rounds_s), registry.topics.get(name)
        fitted = layouts.intended(options) if layouts is not None else not_fitted
        async with _spec(request, config, name) as spec:
            services = explaining.service_ns(spec.name, registry, syncing)
            topic = await registry.submit(spec, fitting=fitted, services=services)
            if layouts is not None:
                await layouts.submitted(topic, before, options)
            return json_answer(await _explained(topic, registry, syncing, layouts, confidence))

    @app.get("/v1/topics")
    async def list_topics() -> Response:
        """All topics."""
        found = (views.topic_view(topic, registry, syncing) for topic in registry.managed())
        return json_answer(await in_portions(found))

    @app.get("/v1/topics/{name}")
    async def show_topic(name: str) -> Response:
        """One topic: where it is, its shares, and the brokers' latest reports."""
        return json_answer(views.topic_view(registry.topic(name), registry, syncing))

    @app.get("/v1/topics/{name}/document")
    async def document(name: str) -> Response:
        """The document of a topic, as `PUT /v1/topics/NAME` takes it; its publishers in columns."""
        return json_answer(registry.topic(name).spec.to_json())

    @app.get("/v1/topics/{name}/why")
    async def why(name: str) -> Response:
        """Why a topic is late: the cause, one sentence with its figures, and what to do."""
        return json_answer(topic_why(registry.topic(name), registry, syncing))

    @app.delete("/v1/topics/{name}", status_code=204)
    async def remove_topic(name: str, purge: bool = False) -> Response:
        """Remove placement and buckets; queued messages stay unless `purge`."""
        await registry.remove(name, purge=purge)
        syncing.forget_topic(name)
        if layouts is not None:
            layouts.cancel(name)
        return Response(status_code=204)

    @app.get("/v1/topics/{name}/decisions")
    async def decisions(name: str) -> Response:
        """What was placed where and why, newest first."""
        return json_answer(views.decisions_view(registry.decisions.get(registry.topic(name).name, [])))

    @app.post("/v1/topics/{name}/plan", openapi_extra=shape)
    async def plan_change(name: str, request: Request, confidence: float = explaining.DEFAULT_CONFIDENCE) -> Response:
        """What a submission under this name would do now. Nothing is stored."""
        explaining.check_confidence(confidence)
        async with _spec(request, config, name) as spec:
            return json_answer(await explaining.planned(spec, registry, syncing, confidence))

    @app.post("/v1/topic-files", openapi_extra=documented('`{"text", "csv": {name: text}}`'))
    async def read_file(request: Request) -> Response:
        """The document of a topic file in TOML, as the other routes take it. `csv`: the files that it names."""
        given = await read_document(request, config, TopicFile)
        files = budgets(request).files
        return json_answer(await trio.to_thread.run_sync(read_topic_text, given.text, given.csv, limiter=files))

    @app.post("/v1/plan", openapi_extra=shape)
    async def plan(request: Request, confidence: float = explaining.DEFAULT_CONFIDENCE) -> Response:
        """What a submission would do now. Nothing is stored. `confidence`: per cent of the minutes that are to keep
        the promise."""
        explaining.check_confidence(confidence)
        async with _spec(request, config) as spec:
            return json_answer(await explaining.planned(spec, registry, syncing, confidence))


async def _explained(
    topic: Topic, registry: Registry, syncing: SyncService, layouts: LayoutJobs | None, confidence: float | None
) -> views.TopicView:
    """The answer to a submission: the topic as it is now, why, and what its fitting has measured."""
    explanation = await explaining.submitted(topic, registry, syncing, confidence)
    view = views.topic_view(topic, registry, syncing)
    view.explanation = explanation
    if layouts is not None:
        view.fitting = layouts.view(topic)
    return view


@asynccontextmanager
async def _spec(request: Request, config: DistributorConfig, name: str | None = None) -> AsyncIterator[TopicSpec]:
    """The topic in the body, while the request works on it. ``name`` is that of the path; the document may leave it
    out. Raises BadInput, Unavailable."""
    document = await read_document(request, config, object)
    if name is not None and isinstance(document, dict):
        document = {"name": name, **document}
    with budgets(request).publishers.holding() as take:
        take(declared_publishers(document))
        spec = await trio.to_thread.run_sync(parse_topic_json, document)
        if name is not None and spec.name != name:
            raise BadInput("name", spec.name, f"must be that of the path, {name!r}, or be left out")
        yield spec


# Publishers


def _publisher_routes(app: FastAPI, registry: Registry, syncing: SyncService, layouts: LayoutJobs | None) -> None:
    config = registry.config
    shape = documented(
        '`{"add": [{"id", "rate", "correlation_group", "latitude", "longitude", "process", "batch"}], "remove": [id]}`'
    )

    @app.patch("/v1/topics/{name}/publishers", openapi_extra=shape)
    async def change_publishers(name: str, request: Request) -> Response:
        """Add and remove publishers of a running topic; the others stay where they are."""
        change = await read_document(request, config, object)
        before = registry.topics.get(name)
        fitted = layouts.intended(None) if layouts is not None else not_fitted
        services = explaining.service_ns(name, registry, syncing)
        topic = await registry.change_publishers(name, lambda spec: parse_change(spec, change), fitted, services)
        if layouts is not None:
            await layouts.submitted(topic, before, None)
        return json_answer(views.topic_view(topic, registry, syncing))

    @app.get("/v1/topics/{name}/publishers")
    async def list_publishers(name: str, broker: str | None = None) -> Response:
        """All assignments, or those of one broker, in columns."""
        return json_answer(views.publishers_view(registry.topic(name), registry, broker))

    @app.get("/v1/topics/{name}/publishers/{publisher_id:path}")
    async def assignment(name: str, publisher_id: str) -> Response:
        """Where this publisher connects. 503 if there is no broker."""
        found = views.assignment(registry.topic(name), publisher_id, registry)
        mqtt_address = syncing.sessions.of(found.broker).mqtt_address
        return json_answer(msgspec.structs.replace(found, mqtt_address=mqtt_address))


# Brokers


def _broker_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    config = registry.config

    @app.get("/v1/brokers")
    async def list_brokers() -> Response:
        """All known brokers."""
        names = (
            name for name in sorted(registry.brokers) if name in registry.brokers
        )  # one may be forgotten meanwhile
        return json_answer(await in_portions(broker_view(name, registry, syncing) for name in names))

    @app.get("/v1/brokers/{name}")
    async def show_broker(name: str) -> Response:
        """One broker."""
        return json_answer(broker_view(name, registry, syncing))

    @app.post("/v1/brokers/{name}/sync", openapi_extra=documented("SyncRequest"))
    async def sync(name: str, request: Request) -> Response:
        """For brokers: reports and acknowledgements up, the desired state down."""
        return json_answer(await syncing.sync(name, await read_message(request, config, SyncRequest)))

    @app.post("/v1/brokers/{name}/drain", status_code=202)
    async def drain(name: str, force: bool = False) -> Response:
        """Take a broker out of service: publishers and tokens go to the others, it delivers what it has and ends.
        409 if the others lack capacity, unless `force`."""
        await registry.drain(name, force=force)
        return json_answer(broker_view(name, registry, syncing), 202)

    @app.post("/v1/brokers/{name}/undrain")
    async def undrain(name: str) -> Response:
        """Let a drained broker back into service once it is started. 409 while it still drains."""
        await registry.undrain(name)
        return json_answer(broker_view(name, registry, syncing))

    @app.post("/v1/brokers/{name}/dead", status_code=204, openapi_extra=documented("DeadNotice"))
    async def dead(name: str, request: Request) -> Response:
        """Proof of death of one incarnation, from a supervisor or an operator."""
        notice = await read_document(request, config, DeadNotice)
        await registry.declare_dead(name, notice.incarnation)
        return Response(status_code=204)

    @app.delete("/v1/brokers/{name}", status_code=204)
    async def forget(name: str) -> Response:
        """Forget a broker that is dead or empty."""
        await registry.forget(name)
        syncing.forget(name)
        return Response(status_code=204)


# The service itself


def _service_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        """That the service runs, its version, and whether it leads or stands by (and for whom)."""
        return json_answer(health_view(registry))

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return StreamingResponse(_portions(exposition(registry, syncing)), media_type=CONTENT_TYPE_LATEST)


async def _portions(text: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Other tasks get their turn after each of them."""
    for portion in text:
        yield portion
        await trio.lowlevel.checkpoint()
