"""The ASGI application of the limit service: its routes are in the modules beside it. Refusals are problem+json."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from limiting.api.access import Access
from limiting.api.check_routes import add_check_routes
from limiting.api.contract_routes import add_contract_routes
from limiting.api.parts import Parts
from limiting.api.subject_routes import add_subject_routes
from srtm.log import Log
from srtm.version import __version__
from srtm.web.auditing import Auditing
from srtm.web.browser import OtherSites, add_page
from srtm.web.refusals import CheckedFirst, add_refusals, refuse_two_lengths


def make_app(parts: Parts) -> FastAPI:
    """Return the application over the decisions and the contracts of ``parts``."""
    app = FastAPIOffline(title="SRTM limit service", version=__version__, redoc_url=None)
    for add_routes in (add_check_routes, add_contract_routes, add_subject_routes):
        add_routes(app, parts)
    add_page(app, Path(__file__).parent / "static", parts.config.tokens)
    add_refusals(app)
    app.add_middleware(Auditing, tokens=parts.config.tokens, log=Log("limit"), store=parts.audit.note)
    if parts.config.tokens is not None:  # added later: runs earlier
        app.add_middleware(CheckedFirst, admit=Access(parts.config.tokens).check)
    app.add_middleware(CheckedFirst, admit=OtherSites(parts.config.tokens, parts.config.http_address).refuse)
    app.add_middleware(CheckedFirst, admit=refuse_two_lengths, closes=True)
    return app
