"""``/v1/drain``: drain this broker if it is in no cluster, and show how far a drain has got."""

from __future__ import annotations

from broker.admin.context import AdminContext
from srtm.errors import Conflict
from srtm.net.http_server import Request, Response, Router, json_response


def add_drain_routes(router: Router, context: AdminContext) -> None:
    async def begin(_request: Request) -> Response:
        if context.config.distributors:
            rule = f"is a member of a cluster, which must place its publishers elsewhere: srtm drain {context.name}"
            raise Conflict("broker", context.name, rule)
        context.drain.begin(f"broker {context.name} is draining: publish to another one")
        return json_response(context.drain.progress(), 202)

    async def show(_request: Request) -> Response:
        return json_response(context.drain.progress())

    router.add("POST", "/v1/drain", begin)
    router.add("GET", "/v1/drain", show)
