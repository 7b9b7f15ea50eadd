"""The distributor as a service: the store, the registry, and HTTP around them.

With SQLite it leads from start to end. With PostgreSQL it leads for a term whenever ``leadership.election`` says so,
and stands by between terms; each term begins with the state in the store.

When it is cancelled it takes no new requests, gives those under way a second to end, and closes the store. Brokers keep
their shares.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import NamedTuple

import trio
from starlette.types import ASGIApp

from distributor.config import DistributorConfig
from distributor.leadership.election import Election
from distributor.leadership.leader import leader_app
from distributor.leadership.postgres_lock import PostgresLock
from distributor.leadership.roles import Roles
from distributor.registry.registry import Registry
from distributor.storage.store import Store
from srtm.concurrency.background import background_nursery
from srtm.log import Log
from srtm.net.address import format_address, parse_address
from srtm.net.renewals import Renewals
from srtm.web.serving import Certificate, add_renewals, bound, serve_app


class BoundAddresses(NamedTuple):
    """The address that is listened on, as HOST:PORT with the real port."""

    http: str


async def serve(
    config: DistributorConfig,
    renewals: Renewals | None = None,
    *,
    task_status: trio.TaskStatus[BoundAddresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a distributor until cancelled. It has started when HTTP answers. ``renewals`` gets the files that may change.

    Raises BadInput (a bad address or store URL), Unavailable (the port is in use, the store cannot be opened, or
    another distributor uses it as SQLite).
    """
    certificate = Certificate(config.tls_cert, config.tls_key)
    certificate.check()
    if renewals is not None:
        add_renewals(renewals, certificate, config.tokens)
    with bound(config.http_address) as listener:
        address = format_address(*listener.getsockname()[:2])
        store = await Store.open(config.store)
        try:
            async with background_nursery() as nursery:
                app = await _make_app(store, config, address, nursery)
                await serve_app(
                    app, listener, certificate, Log("distributor"), lambda: _ready(address, config, task_status)
                )
        finally:
            await store.aclose()


async def _make_app(store: Store, config: DistributorConfig, address: str, nursery: trio.Nursery) -> ASGIApp:
    """The application, once it is known who leads. Its tasks run in ``nursery``."""
    url, log = f"{_scheme(config)}://{advertised_address(config, address)}", Log("distributor")
    if store.database.is_shared:
        roles = Roles(store, config, Election(partial(PostgresLock, store.database)), url, log)
        nursery.start_soon(roles.run)
        await roles.decided.wait()
        return roles.front_door
    registry = await Registry.load(store, config)
    app, tasks = leader_app(registry, url)
    for task in (registry.run, *tasks):
        nursery.start_soon(task)
    return app


def advertised_address(config: DistributorConfig, address: str) -> str:
    """HOST:PORT at which others reach what is bound to ``address``."""
    host, port = parse_address("http_address", address)
    if config.broadcast_address is not None:
        host = config.broadcast_address
    elif host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return format_address(host, port)


def _scheme(config: DistributorConfig) -> str:
    return "http" if config.tls_cert is None else "https"


def _ready(address: str, config: DistributorConfig, task_status: trio.TaskStatus[BoundAddresses]) -> None:
    Log("distributor").info("ready", **{_scheme(config): address})
    task_status.started(BoundAddresses(address))
