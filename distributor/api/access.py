"""Which token may use which route, and in whose name.

An operator's token may use every route. Routes of programs without tokens (NSQ consumers, health checks) are open, and
so are the page's files, which hold no data. A
route that is not named here is for operators only. A broker's token may use only those of its own name below
``/v1/brokers/NAME`` and ``/v1/limit-nodes/CLUSTER/NAME``.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from starlette.routing import BaseRoute, Match, Route

from srtm.net.tokens import SCOPES, Scope, Tokens
from srtm.web.browser import ASSETS, SESSION, authorization

_OPEN = {"/", "/ping", "/healthz", "/lookup", "/topics", "/channels", "/nodes", "/info", SESSION}
_IN_OWN_NAME = ("/v1/brokers/{name}", "/v1/limit-nodes/{cluster}/{name}")
_ANY: tuple[Scope, ...] = SCOPES
_ALSO: dict[tuple[str, str], tuple[Scope, ...]] = {
    ("GET", "/v1/topics/{name}/publishers/{publisher_id}"): ("client", "broker"),
    ("POST", "/v1/brokers/{name}/sync"): ("broker",),
    ("POST", "/v1/brokers/{name}/history"): ("broker",),
    ("POST", "/v1/brokers/{name}/measurements/{id}"): ("broker",),
    ("POST", "/v1/brokers/{name}/dead"): ("broker",),  # one that was drained says so itself
    ("PUT", "/v1/limit-nodes/{cluster}/{name}"): ("broker",),
    ("GET", "/metrics"): _ANY,
    ("GET", "/openapi.json"): _ANY,
    ("GET", "/docs"): _ANY,
}


class Access:
    """``routes`` are all routes, in the order in which they are matched."""

    def __init__(self, tokens: Tokens, routes: Sequence[BaseRoute]) -> None:
        self._tokens = tokens
        self._routes = [route for route in routes if isinstance(route, Route)]

    async def check(self, request: Request) -> None:
        """Raises Unauthorized, Forbidden."""
        if is_open(request.scope["path"]):  # the URL's path depends on the Host header
            return
        self._tokens.check(authorization(request), *self._needed(request))

    def _needed(self, request: Request) -> tuple[tuple[Scope, ...], str | None]:
        """Scopes besides ``operator``, and the broker or node that speaks.

        Any token may learn that a route does not exist.
        """
        for route in self._routes:
            match, found = route.matches(request.scope)
            if match is Match.FULL:
                named = route.path.startswith(_IN_OWN_NAME)
                return scopes(request.method, route.path), found["path_params"]["name"] if named else None
        return _ANY, None


def scopes(method: str, path: str) -> tuple[Scope, ...]:
    """Scopes besides ``operator`` that may use a route; ``path`` has its {parameters}."""
    return _ALSO.get(("GET" if method == "HEAD" else method, path.replace(":path}", "}")), ())


def is_open(path: str) -> bool:
    """Whether ``path`` needs no token."""
    return path in _OPEN or path.startswith(ASSETS)
