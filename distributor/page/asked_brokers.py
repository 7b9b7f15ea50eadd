"""Brokers that the distributor asks for whoever asks it, with the token of that request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from fastapi import Request

from distributor.registry.registry import Registry
from srtm.client.broker import BrokerClient
from srtm.web.browser import authorization


@asynccontextmanager
async def asked(registry: Registry, name: str, request: Request) -> AsyncIterator[BrokerClient]:
    """A client of broker ``name`` in the name of who makes ``request``. Raises NotFound."""
    token = (authorization(request) or "").partition(" ")[2].strip() or None
    async with aclosing(BrokerClient(registry.broker(name).http_address, token)) as client:
        yield client
