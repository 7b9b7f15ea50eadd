"""``/v1/contracts/...``: what brokers tell one another of replicated contracts (``news``: what clients took elsewhere,
``overdrawn``: for one that starts); for operators the heaviest ``subjects`` of a namespace."""

from __future__ import annotations

import msgspec

from broker.admin.context import AdminContext
from broker.leases.contract_news import MOST_COST
from srtm.control import ContractNews, Overdrawn
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_server import Request, Response, Router
from srtm.net.tokens import BROKERS

_LIMIT_BYTES = 65_536
_MOST_SUBJECTS = 100


def add_contract_routes(router: Router, context: AdminContext) -> None:
    async def take(request: Request) -> Response:
        body = await request.read_body(_LIMIT_BYTES)
        try:
            news = msgspec.json.decode(body, type=ContractNews)
        except UNREADABLE as error:
            raise BadInput("body", body[:80], f"must be a ContractNews: {error}") from None
        if any(not 0 <= cost <= MOST_COST for *_, cost in news.taken):
            raise BadInput("taken", None, f"must be costs from 0 to {MOST_COST}")
        if context.tokens is not None:
            context.tokens.check(request.header("authorization"), BROKERS, news.sender)
        context.take_contract_news(news)
        return Response(status=204)

    async def overdrawn(_: Request) -> Response:
        return Response(body=msgspec.json.encode(Overdrawn(owed=context.engine.overdrawn())))

    async def subjects(request: Request) -> Response:
        namespace = request.arguments().get("namespace")
        if not namespace:
            raise BadInput("namespace", namespace, "is required")
        body = context.engine.heaviest_subjects(namespace, _MOST_SUBJECTS)
        return Response(body=body, content_type="application/json")

    router.add("GET", "/v1/contracts/subjects", subjects)
    router.add("POST", "/v1/contracts/news", take, scopes=BROKERS)
    router.add("GET", "/v1/contracts/overdrawn", overdrawn, scopes=BROKERS)
