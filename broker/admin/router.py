"""The broker's HTTP: nsqd's routes and ours behind one router, each with its own kind of refusal.

``/v1/...``, ``/metrics`` and ``/healthz`` refuse with problem+json, all other routes as nsqd does.
"""

from __future__ import annotations

import shutil
from functools import partial

from broker import snapshot
from broker.admin import openapi
from broker.admin.bucket import add_bucket_routes
from broker.admin.context import AdminContext
from broker.admin.contract_routes import add_contract_routes
from broker.admin.drain_routes import add_drain_routes
from broker.admin.gdrl import add_gdrl_routes
from broker.admin.link_routes import add_link_routes
from broker.admin.mqtt_routes import add_mqtt_routes
from broker.admin.nsqd_routes import add_nsqd_routes, nsq_answer
from broker.admin.options import add_option_routes
from broker.stats import latency_buckets
from broker.stats.prometheus import Scrape, exposition
from srtm.control import Throttling
from srtm.errors import BadInput, Forbidden, NotFound, Unauthorized
from srtm.net.http_server import Handler, NoSuchMethod, Request, Response, Router, json_response
from srtm.net.tokens import BROKERS
from srtm.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OURS = ("/v1/", "/metrics", "/healthz", "/openapi.json")


def admin_handler(context: AdminContext) -> Handler:
    router = Router(context.tokens, context.log)
    add_nsqd_routes(router, context)
    add_option_routes(router, context)
    add_bucket_routes(router, context)
    add_drain_routes(router, context)
    add_gdrl_routes(router, context)
    add_link_routes(router, context)
    add_contract_routes(router, context)
    add_mqtt_routes(router, context)
    service = _ServiceRoutes(context)
    router.add("GET", "/metrics", service.metrics)
    router.add("GET", "/healthz", service.healthz)
    router.add("GET", "/openapi.json", service.openapi)

    async def handle(request: Request) -> Response:
        if request.path.startswith(_OURS):
            return await router(request)
        try:
            return await router(request)
        except NotFound:
            return await _nsq_refusal(request, 404, "NOT_FOUND")
        except NoSuchMethod as error:
            return await _nsq_refusal(request, 405, "METHOD_NOT_ALLOWED", (("Allow", error.allow),))
        except Unauthorized:
            return await _nsq_refusal(request, 401, "UNAUTHORIZED")
        except Forbidden:
            return await _nsq_refusal(request, 403, "FORBIDDEN")
        except BadInput:
            return await _nsq_refusal(request, 400, "INVALID_REQUEST")

    return handle


async def _nsq_refusal(request: Request, status: int, code: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    async def refuse(_request: Request) -> Response:
        return json_response({"message": code}, status, headers)

    return await nsq_answer(refuse)(request)


class _ServiceRoutes:
    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def metrics(self, _request: Request) -> Response:
        body = await self._context.make_large(partial(self._exposed, self._context.throttling()))
        return Response(body=body, content_type=CONTENT_TYPE)

    def _exposed(self, throttling: Throttling) -> bytes:
        context = self._context
        scrape = Scrape(
            name=context.name,
            snapshot=snapshot.take(context.engine),
            take_buckets=partial(latency_buckets.take, context.engine),
            metrics_topics=context.config.metrics_topics,
            metrics_contracts=context.config.metrics_contracts,
            throttling=throttling,
            gdrl_rounds=context.gdrl_rounds(),
            gdrl_nonsense=context.gdrl_invalid_messages(),
            is_healthy=context.health() == "OK",
            contracts=snapshot.take_contracts(context.engine),
            take_disk=partial(_disk, context.config.data_path),
        )
        return b"".join(exposition(scrape))

    async def openapi(self, _request: Request) -> Response:
        return json_response(openapi.document(__version__))

    async def healthz(self, request: Request) -> Response:
        """200 while the broker works. ``accepting`` says whether it takes publishes. Where tokens are required, the
        incarnation is for their holders: whoever knows it can say that this broker is dead."""
        health = self._context.health()
        facts = {
            "status": "ok" if health == "OK" else health,
            "name": self._context.name,
            "version": __version__,
            "accepting": snapshot.take(self._context.engine, snapshot.NO_TOPIC).accepting,
        }
        if self._is_told(request):
            facts["incarnation"] = self._context.incarnation
        return json_response(facts, 200 if health == "OK" else 503)

    def _is_told(self, request: Request) -> bool:
        if self._context.tokens is None:
            return True
        try:
            self._context.tokens.check(request.header("authorization"), BROKERS, self._context.name)
        except (Unauthorized, Forbidden):
            return False
        return True


def _disk(path: str) -> tuple[int, int] | None:
    """Bytes of the file system of ``path``, and those that are free. None: it does not say."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return usage.total, usage.free
