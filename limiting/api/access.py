"""Which token may use which route of the limit service: clients may ask, correct and release."""

from __future__ import annotations

from fastapi import Request

from srtm.net.tokens import SCOPES, Scope, Tokens
from srtm.web.browser import ASSETS, SESSION, authorization

_OPEN = {"/healthz", "/", SESSION}  # and assets of the page
_CHECKS = "/limit/v1/check"
_CLIENTS = {_CHECKS, "/json", "/limit/v1/check-many", "/limit/v1/correct", "/limit/v1/release"}
_ANY = {"/metrics", "/openapi.json", "/docs"}


class Access:
    """Admits requests by their bearer token."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def check(self, request: Request) -> None:
        """Raises Unauthorized, Forbidden."""
        path = request.scope["path"]
        if path in _OPEN or path.startswith(ASSETS):
            return
        self._tokens.check(authorization(request), scopes(path))


def scopes(path: str) -> tuple[Scope, ...]:
    """The scopes besides ``operator`` that may use a path."""
    if path in _ANY:
        return SCOPES
    return ("client",) if path in _CLIENTS else ()
