"""``/v1/mqtt/...``: MQTT's sessions, retained messages, and what was lost, for operators."""

from __future__ import annotations

from functools import partial

from broker import snapshot
from broker.admin.context import AdminContext
from broker.stats.mqtt_losses import losses_by_topic
from srtm.errors import BadInput, NotFound
from srtm.net.http_server import Request, Response, Router, json_response

MOST = 10_000  # sessions or retained messages of one answer
_JSON = "application/json"


def add_mqtt_routes(router: Router, context: AdminContext) -> None:
    engine = context.engine

    async def sessions(request: Request) -> Response:
        most = _most(request)
        return Response(body=await context.make_large(partial(engine.mqtt_sessions, most)), content_type=_JSON)

    async def session(request: Request) -> Response:
        client = _argument(request, "client")
        body = engine.mqtt_session(client)
        if body is None:
            raise NotFound("client", client)
        return Response(body=body, content_type=_JSON)

    async def kick(request: Request) -> Response:
        client = _argument(request, "client")
        if not engine.kick_mqtt(client):
            raise NotFound("client", client)
        return Response(status=204)

    async def retained(request: Request, *, clear: bool = False) -> Response:
        pattern = request.arguments().get("filter", "#")
        try:
            body = await context.make_large(partial(engine.mqtt_retained, pattern, MOST, clear))
        except ValueError as error:
            raise BadInput("filter", pattern, str(error)) from None
        return Response(body=body, content_type=_JSON)

    async def losses(_request: Request) -> Response:
        return json_response(await context.make_large(lambda: losses_by_topic(snapshot.take(engine))))

    router.add("GET", "/v1/mqtt/losses", losses)
    router.add("GET", "/v1/mqtt/sessions", sessions)
    router.add("GET", "/v1/mqtt/session", session)
    router.add("DELETE", "/v1/mqtt/session", kick)
    router.add("GET", "/v1/mqtt/retained", retained)
    router.add("DELETE", "/v1/mqtt/retained", partial(retained, clear=True))


def _most(request: Request) -> int:
    text = request.arguments().get("most", str(MOST))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST):
        raise BadInput("most", text, f"must be a number from 1 to {MOST}")
    return int(text)


def _argument(request: Request, name: str) -> str:
    value = request.arguments().get(name)
    if not value:
        raise BadInput(name, value, "is required")
    return value
