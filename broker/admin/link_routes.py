"""``PUT /v1/links/BROKER``: another broker says what its MQTT subscribers want."""

from __future__ import annotations

import msgspec
import trio

from broker.admin.context import AdminContext
from srtm.control import LinkRequest, check_broker_name
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_server import Request, Response, Router, json_response
from srtm.net.json_keys import refuse_repeated_keys
from srtm.net.tokens import BROKERS

_LIMIT_BYTES = 1 << 20


def add_link_routes(router: Router, context: AdminContext) -> None:
    async def register(request: Request, name: str) -> Response:
        body = await request.read_body(_LIMIT_BYTES)
        try:
            wanted = msgspec.json.decode(body, type=LinkRequest)
        except UNREADABLE as error:
            raise BadInput("body", body[:80], f"must be a LinkRequest: {error}") from None
        refuse_repeated_keys(body)
        check_broker_name("sender", wanted.sender)
        if wanted.sender != name or name == context.name:
            raise BadInput("sender", wanted.sender, "must be the broker that the path names, and another one than this")
        if context.tokens is not None:
            context.tokens.check(request.header("authorization"), BROKERS, name)
        return json_response(context.consuming.register(name, wanted, trio.current_time()))

    router.add("PUT", "/v1/links/{name}", register, scopes=BROKERS)
