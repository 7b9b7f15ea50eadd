"""``POST /v1/gdrl/exchange``: offers and credits of other brokers."""

from __future__ import annotations

import msgspec

from broker.admin.context import AdminContext
from srtm.control import GdrlMessage
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_server import Request, Response, Router, json_response
from srtm.net.json_keys import refuse_repeated_keys
from srtm.net.tokens import BROKERS

_LIMIT_BYTES = 16_384


def add_gdrl_routes(router: Router, context: AdminContext) -> None:
    async def exchange(request: Request) -> Response:
        body = await request.read_body(_LIMIT_BYTES)
        try:
            message = msgspec.json.decode(body, type=GdrlMessage)
        except UNREADABLE as error:
            raise BadInput("body", body[:80], f"must be a GdrlMessage: {error}") from None
        refuse_repeated_keys(body)
        if context.tokens is not None:
            context.tokens.check(request.header("authorization"), BROKERS, message.sender)
        return json_response(context.answer_gdrl(message))

    router.add("POST", "/v1/gdrl/exchange", exchange, scopes=BROKERS)
