"""Serves pages to browsers: assets, a token in a cookie, and the refusal of requests that other sites make.

A browser sends the cookie with every request, also with those that a page of another site makes. So a request that may
change something must come from a page of this service (cross-site request forgery). That holds without tokens, too: a
site that its visitor trusts not at all could else drain a broker on the visitor's own machine. There a site could also
let its own name lead to this service (DNS rebinding), so only names of this service count.
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response

from srtm.errors import BadInput, NotFound
from srtm.net.address import parse_address
from srtm.net.tokens import OPERATOR, Holder, Tokens
from srtm.web.bodies import Budget, read_content

COOKIE = "srtm_token"
ASSETS = "/page/"  # the path below which assets are
SESSION = "/session"
_LONGEST_TOKEN_BYTES = 4096
_SLOWEST_S = 10.0  # for a token to come
_SAFE = ("GET", "HEAD", "OPTIONS")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cache-Control": "no-cache",  # asked for anew each time; the ETag makes that cheap
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class OtherSite(BadInput):
    """The request was made by a page of another site."""

    title = "forbidden"
    http_status = 403


def authorization(request: Request) -> str | None:
    """The header ``Authorization`` of a program, or what it would be for the token in a browser's cookie."""
    given = request.headers.get("Authorization")
    if given is not None:
        return given
    token = request.cookies.get(COOKIE)
    return None if token is None else f"Bearer {token}"


class OtherSites:
    """The refusal of what other sites' pages ask for. ``names``: host names at which browsers reach this service.

    With ``tokens`` any name will do: a browser sends the cookie to none but the one that it is of.
    """

    def __init__(self, tokens: Tokens | None, http_address: str, *names: str | None) -> None:
        listened, _ = parse_address("http_address", http_address)
        self._names = {name.lower() for name in (listened, socket.gethostname(), *names) if name is not None}
        self._has_tokens = tokens is not None

    async def refuse(self, request: Request) -> None:
        """Raises OtherSite for a request that may change something and comes from another site's page.

        Browsers say where a request comes from (``Sec-Fetch-Site``, or ``Origin`` in older ones); programs say nothing.
        A request with the cookie must say it.
        """
        if request.method in _SAFE:
            return
        site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
        host = request.headers.get("Host", "")
        if site is not None:
            allowed = site in ("same-origin", "none")
        elif origin is not None:
            allowed = bool(host) and origin.partition("://")[2] == host
        else:
            allowed = COOKIE not in request.cookies or "Authorization" in request.headers
        if not allowed:
            rule = "must be this service: another site's page may not change anything here"
            raise OtherSite("Origin", origin or site or "(not said)", rule)
        is_browser = site is not None or origin is not None
        if is_browser and not self._has_tokens and not _is_of(host, self._names):
            rule = (
                "must be an IP address, localhost or this service's own name, as long as no tokens are needed: "
                "any site can let a name lead here"
            )
            raise OtherSite("Host", host, rule)


def _is_of(host: str, names: Collection[str]) -> bool:
    """Whether the header ``Host`` has one of ``names``, or a host that no other site can have."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(name) is not None
    except ValueError:
        return name in names or name == "localhost" or name.endswith(".localhost")


def add_page(app: FastAPI, folder: Path, tokens: Tokens | None) -> None:
    """Serve ``index.html`` of ``folder`` at ``/``, the session of the page, and below ``/page/`` its other files and
    those that all pages share."""
    shared = Path(__file__).parent / "assets"
    assets = {path.name: _Asset(path) for each in (shared, folder) for path in each.iterdir() if path.suffix in _TYPES}

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return assets["index.html"].answer(request)

    @app.get(ASSETS + "{name}", include_in_schema=False)
    async def asset(name: str, request: Request) -> Response:
        if name not in assets:
            raise NotFound("path", name)
        return assets[name].answer(request)

    _add_session(app, tokens)


def _add_session(app: FastAPI, tokens: Tokens | None) -> None:
    @app.get(SESSION, include_in_schema=False)
    async def session(request: Request) -> dict[str, object]:
        """Whether a token is needed, and whose is in the cookie."""
        holder = _holder(tokens, request.cookies.get(COOKIE))
        return {"needed": tokens is not None, "name": None if holder is None else holder.name}

    @app.post(SESSION, status_code=204, include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        content = await read_content(
            request, Budget(_LONGEST_TOKEN_BYTES, "bytes of tokens"), _LONGEST_TOKEN_BYTES, _SLOWEST_S
        )
        given = content.decode("ascii", "replace").strip()
        if _holder(tokens, given) is None:
            raise BadInput("token", "(not shown)", "must be the token of an operator, of this service's token file")
        answer = Response(status_code=204)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    @app.delete(SESSION, status_code=204, include_in_schema=False)
    async def sign_out() -> Response:
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer


def _holder(tokens: Tokens | None, token: str | None) -> Holder | None:
    """Whose ``token`` it is, if an operator's."""
    holder = None if tokens is None or token is None else tokens.holder(token)
    return holder if holder is not None and holder.scope == OPERATOR else None


class _Asset:
    """A small file, read once."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        self._type = _TYPES[path.suffix]
        self._tag = f'"{hashlib.sha256(self._content).hexdigest()[:16]}"'

    def answer(self, request: Request) -> Response:
        headers = {**_HEADERS, "ETag": self._tag}
        if request.headers.get("If-None-Match") == self._tag:
            return Response(status_code=304, headers=headers)
        return Response(self._content, headers=headers, media_type=self._type)
