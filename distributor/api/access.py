"""Which token may use which route.

An operator's token may do everything. Programs that know no tokens (NSQ consumers, health checks) find their routes
open. What is not named here is for operators alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from starlette.routing import BaseRoute, Match, Route

from srtm.net.tokens import SCOPES, Scope, Tokens

_OPEN = {"/ping", "/healthz", "/lookup", "/topics", "/channels", "/nodes"}
_ANY: tuple[Scope, ...] = SCOPES
_ALSO: dict[tuple[str, str], tuple[Scope, ...]] = {
    ("GET", "/v1/topics/{name}/publishers/{publisher_id}"): ("client", "broker"),
    ("POST", "/v1/brokers/{name}/sync"): ("broker",),
    ("POST", "/v1/brokers/{name}/history"): ("broker",),
    ("POST", "/v1/brokers/{name}/measurements/{id}"): ("broker",),
    ("POST", "/v1/brokers/{name}/dead"): ("broker",),  # one that was drained says so itself
    ("GET", "/metrics"): _ANY,
    ("GET", "/openapi.json"): _ANY,
    ("GET", "/docs"): _ANY,
}


class Access:
    """``routes``: all that there are, in the order in which they are tried."""

    def __init__(self, tokens: Tokens, routes: Sequence[BaseRoute]) -> None:
        self._tokens = tokens
        self._routes = [route for route in routes if isinstance(route, Route)]

    async def check(self, request: Request) -> None:
        """Raises Unauthorized, Forbidden."""
        if is_open(request.scope["path"]):  # not that of a URL which the Host header has a part in
            return
        self._tokens.check(request.headers.get("Authorization"), self._scopes(request))

    def _scopes(self, request: Request) -> tuple[Scope, ...]:
        """Besides operators. What is not there at all, everybody with a token may be told."""
        for route in self._routes:
            if route.matches(request.scope)[0] is Match.FULL:
                return scopes(request.method, route.path)
        return _ANY


def scopes(method: str, path: str) -> tuple[Scope, ...]:
    """Besides operators, of a route's path with its {parameters}."""
    return _ALSO.get(("GET" if method == "HEAD" else method, path.replace(":path}", "}")), ())


def is_open(path: str) -> bool:
    """Nobody is asked for a token."""
    return path in _OPEN
